"""Groups of the classic protocol: members meet in generations, and one of them assigns."""
