"""The page on delivery, sentence by sentence: the tests that show each to be true.

A sentence, or a row of a table, is known by its beginning. A test is named by its file, in `tests`, and its function.
What claims nothing that could be tried says so: `EXPLAINS`.
"""

from __future__ import annotations

EXPLAINS = ("explains",)

SENTENCES: dict[str, tuple[str, ...]] = {
    "What a log keeps depends on three decisions": EXPLAINS,
    "Each can lose a record, write it twice": EXPLAINS,
    "Everything said here is shown by a test": ("modes/test_delivery_page.py::test_each_sentence_has_its_test",),
    "`tests/modes/delivery_sentences.py` names": (
        "modes/test_delivery_page.py::test_the_tests_of_the_sentences_are_there",
    ),
    "| failure | what allows it": EXPLAINS,
    "| **producer loss**": (
        "modes/test_producer_loss.py::test_what_waits_in_the_buffer_dies_with_the_process",
        "modes/test_producer_loss.py::test_who_waits_for_the_acknowledgement_has_nothing_in_the_buffer",
    ),
    "| … the connection is cut": (
        "modes/test_producer_loss.py::test_without_acknowledgements_a_cut_connection_takes_records_along",
        "modes/test_producer_loss.py::test_without_acknowledgements_nobody_hears_that_the_disk_is_full",
        "modes/test_producer_loss.py::test_with_them_they_are_sent_again",
        "modes/test_producer_loss.py::test_with_them_the_program_is_told",
    ),
    "| **cluster loss**": (
        "modes/test_cluster_loss.py::test_a_loss_of_power_takes_what_is_only_in_the_page_cache",
        "modes/test_cluster_loss.py::test_with_fsync_what_is_acknowledged_is_on_the_disk",
        "modes/test_cluster_loss.py::test_what_only_the_leader_has_acknowledged_goes_with_the_leader",
    ),
    "| **consumer loss**": (
        "modes/test_consumer_loss.py::test_at_most_once_loses_what_was_not_processed",
        "modes/test_consumer_loss.py::test_commits_by_the_clock_lose_it_too",
        "modes/test_consumer_loss.py::test_at_least_once_commits_by_the_clock_only_what_was_processed",
    ),
    "| **producer duplicates**": (
        "modes/test_producer_duplicates.py::test_a_lost_acknowledgement_doubles_a_record",
        "modes/test_producer_duplicates.py::test_an_idempotent_producer_is_recognized",
        "modes/test_producer_duplicates.py::test_also_by_a_broker_that_was_killed_in_between",
    ),
    "| **consumer duplicates**": (
        "modes/test_consumer_duplicates.py::test_at_least_once_does_the_work_again",
        "modes/test_consumer_duplicates.py::test_a_rebalance_repeats_what_was_not_committed",
        "modes/test_consumer_duplicates.py::test_who_does_not_ask_for_more_in_time_loses_its_records_to_others",
        "modes/test_consumer_duplicates.py::test_exactly_once_keeps_work_and_offsets_together",
        "modes/test_consumer_duplicates.py::test_a_handler_may_be_slow",
    ),
    "| **reordering**": (
        "modes/test_reordering.py::test_with_several_requests_in_flight_a_retry_comes_behind_later_ones",
        "modes/test_reordering.py::test_with_one_at_a_time_nothing_can_overtake",
        "modes/test_reordering.py::test_an_idempotent_producer_keeps_the_order_with_five",
    ),
    "| you choose | lost | twice": EXPLAINS,
    '| `acks="0"` |': (
        "modes/test_producer_loss.py::test_without_acknowledgements_a_cut_connection_takes_records_along",
        "modes/test_producer_duplicates.py::test_without_acknowledgements_nothing_comes_twice_or_out_of_order",
    ),
    '| `acks="1"` |': (
        "modes/test_cluster_loss.py::test_what_only_the_leader_has_acknowledged_goes_with_the_leader",
        "modes/test_delivery_rows.py::test_acks_of_the_leader_are_written_twice_when_one_is_lost",
        "modes/test_reordering.py::test_with_several_requests_in_flight_a_retry_comes_behind_later_ones",
    ),
    '| `acks="1", max_in_flight=1` |': (
        "modes/test_cluster_loss.py::test_what_only_the_leader_has_acknowledged_goes_with_the_leader",
        "modes/test_delivery_rows.py::test_acks_of_the_leader_are_written_twice_when_one_is_lost",
        "modes/test_reordering.py::test_with_one_at_a_time_nothing_can_overtake",
    ),
    '| `acks="all"` (the default': (
        "modes/test_producer_duplicates.py::test_an_idempotent_producer_is_recognized",
        "modes/test_reordering.py::test_an_idempotent_producer_keeps_the_order_with_five",
        "cluster/test_killed_leaders.py::test_nothing_acknowledged_is_lost_when_leaders_are_killed",
        "client_sim/test_seeds.py::test_nothing_is_lost_doubled_hidden_or_left",
    ),
    "| `transactional_id=…` |": (
        "modes/test_producer_duplicates.py::test_a_program_that_starts_again_under_its_transactional_id_writes_once",
        "modes/test_reordering.py::test_a_transaction_keeps_it_too",
    ),
    "An idempotent producer is known by an id": (
        "modes/test_producer_duplicates.py::test_an_idempotent_program_that_starts_again_is_another_one",
    ),
    "A program that dies and is started again": (
        "modes/test_producer_duplicates.py::test_an_idempotent_program_that_starts_again_is_another_one",
    ),
    "That is what a `transactional_id` is for": (
        "modes/test_producer_duplicates.py::test_a_program_that_starts_again_under_its_transactional_id_writes_once",
    ),
    "`linger_ms` is how long": ("client/test_producer.py::test_records_that_are_sent_one_by_one_travel_together",),
    "A short one makes the loss smaller": (
        "modes/test_producer_loss.py::test_what_waits_in_the_buffer_dies_with_the_process",
        "modes/test_producer_loss.py::test_who_waits_for_the_acknowledgement_has_nothing_in_the_buffer",
    ),
    "`delivery_timeout_ms` ends the attempts": (
        "client/test_producer_in_a_world.py::test_a_delivery_timeout_holds_while_the_broker_is_silent",
    ),
    "Of what timed out nobody knows": (
        "modes/test_producer_loss.py::test_what_timed_out_may_have_been_written_or_not",
    ),
    "Leaving the producer's `with` block": (
        "client/test_producer.py::test_a_failure_that_nobody_asks_for_is_raised_by_flush_and_by_close",
        "client/test_producer_in_a_world.py::test_to_ask_for_one_record_hides_nothing_of_its_neighbours",
    ),
    "A commit whose answer is lost is asked for again": (
        "client/test_producer_in_a_world.py::test_a_lost_answer_to_the_commit_is_asked_for_until_it_is_known",
        "client/test_crooked_broker.py::test_a_commit_that_is_answered_with_nonsense_is_asked_for_again",
    ),
    "Nobody is told that a transaction failed which": (
        "client/test_producer_in_a_world.py::test_a_commit_without_an_answer_is_unknown_and_no_failure",
        "client_sim/test_seeds.py::test_nothing_is_lost_doubled_hidden_or_left",
    ),
    "A transaction whose end is not asked for within": (
        "client/test_transactions.py::test_a_transaction_that_was_open_for_too_long_is_told_as_aborted_and_the_next_one_works",
    ),
    "Whoever commits it later is told so": (
        "client/test_transactions.py::test_a_transaction_that_was_open_for_too_long_is_told_as_aborted_and_the_next_one_works",
    ),
    "One broker keeps what it has acknowledged": (
        "modes/test_cluster_loss.py::test_the_end_of_the_process_takes_nothing_from_the_page_cache",
        "modes/test_cluster_loss.py::test_nor_on_a_real_disk",
    ),
    "A loss of power takes what was only": (
        "modes/test_cluster_loss.py::test_a_loss_of_power_takes_what_is_only_in_the_page_cache",
        "modes/test_cluster_loss.py::test_whatever_else_the_disk_kept",
    ),
    "`ottla serve --durability fsync` acknowledges": (
        "modes/test_cluster_loss.py::test_with_fsync_what_is_acknowledged_is_on_the_disk",
        "broker/test_rounds.py::test_each_append_waits_where_none_may_be_lost",
    ),
    "Replicas are the other way": EXPLAINS,
    "What only the leader has acknowledged": (
        "modes/test_cluster_loss.py::test_what_only_the_leader_has_acknowledged_goes_with_the_leader",
    ),
    "With one broker both mean the same": (
        "modes/test_delivery_rows.py::test_with_one_broker_acks_of_the_leader_and_of_all_keep_the_same",
    ),
    "| `delivery=` | after a crash": EXPLAINS,
    '| `"at-most-once"` |': (
        "modes/test_consumer_loss.py::test_at_most_once_loses_what_was_not_processed",
        "modes/test_delivery_rows.py::test_at_most_once_a_crash_takes_500_records_of_each_partition_and_no_more",
        "client/consumer_contract.py::test_at_most_once_commits_before_it_hands_out",
    ),
    '| `"at-least-once"` (the default) |': (
        "modes/test_consumer_duplicates.py::test_at_least_once_does_the_work_again",
        "modes/test_delivery_rows.py::test_at_least_once_a_crash_repeats_what_was_processed_within_the_interval_of_commits",
        "client/consumer_contract.py::test_offsets_are_committed_now_and_then",
    ),
    '| `"at-least-once"`, `auto_commit=False`': (
        "modes/test_consumer_loss.py::test_a_commit_by_hand_after_the_work_loses_nothing",
    ),
    '| `"exactly-once"` |': (
        "modes/test_consumer_duplicates.py::test_exactly_once_keeps_work_and_offsets_together",
        "client/consumer_contract.py::test_a_transaction_is_seen_whole_or_not_at_all",
    ),
    "What counts as processed, and is committed": EXPLAINS,
    "| you read with | it is processed when": EXPLAINS,
    "| `for message in consumer`": (
        "client/test_partition_position.py::test_what_is_in_hand_is_not_finished_until_more_is_asked_for",
        "client/consumer_contract.py::test_what_was_processed_is_not_read_again_and_what_failed_is",
        "client/test_consumer_stale.py::test_what_is_in_hand_when_it_is_unsubscribed_comes_again",
        "modes/test_delivery_rows.py::test_what_is_in_hand_when_partitions_are_assigned_comes_again",
    ),
    "| `poll()` |": ("client/test_consumer.py::test_what_poll_returned_is_processed_when_it_is_called_again",),
    "| `run(handler)` |": (
        "client/test_consumer.py::test_a_message_that_its_handler_refused_comes_again",
        "client/test_consumer.py::test_an_aborted_batch_comes_again_exactly_once",
        "client/test_run_exactly_once.py::test_without_dead_letters_its_error_is_raised_and_nothing_is_left",
        "client/consumer_contract.py::test_a_handler_that_fails_is_tried_again_and_then_the_message_goes_to_the_dead_letters",
    ),
    "`break` leaves the record in hand": (
        "client/consumer_contract.py::test_a_loop_that_was_left_goes_on_where_it_was",
        "client/test_consumer.py::test_nothing_committed_is_hidden_behind_an_abort_when_each_loop_is_left",
    ),
    "Whoever hands records to threads of his own": (
        "client/test_consumer.py::test_what_poll_returned_is_processed_when_it_is_called_again",
    ),
    "A damaged batch is an error at its position": (
        "client/test_consumer_in_a_world.py::test_sound_records_come_before_a_damaged_batch_and_nothing_behind_it_is_committed",
        "client/test_fetched_data.py::test_a_batch_out_of_order_is_damage_where_it_lies",
    ),
    "The sound records before it are handed out": (
        "client/test_consumer_in_a_world.py::test_sound_records_come_before_a_damaged_batch_and_nothing_behind_it_is_committed",
        "client/test_consumer_in_a_world.py::test_a_reader_gives_what_is_sound_and_then_tells_of_the_damage",
    ),
    "A record that a deserializer refuses": (
        "client/test_consumer.py::test_a_value_that_cannot_be_deserialized_is_an_error_until_it_is_passed",
    ),
    "At most once, a commit that is refused": (
        "client/test_consumer.py::test_a_refused_commit_skips_nothing_at_most_once",
    ),
    "What was committed and not handed out is given back": (
        "client/test_at_most_once.py::test_who_leaves_in_the_middle_of_a_portion_leaves_the_rest_to_others",
        "client/test_at_most_once.py::test_nor_is_it_lost_when_the_group_gives_the_partition_to_another",
        "modes/test_consumer_loss.py::test_at_most_once_loses_what_was_not_processed",
    ),
    "A member that was thrown out of its group cannot": (
        "client/test_at_most_once.py::test_who_was_thrown_out_is_handed_out_the_rest_of_its_portion",
    ),
    "So what loses it is a crash": (
        "client/test_at_most_once.py::test_what_the_rest_of_a_portion_is_lost_by",
        "modes/test_consumer_loss.py::test_at_most_once_loses_what_was_not_processed",
    ),
    "What was handed out never comes again": (
        "client/test_at_most_once.py::test_who_leaves_in_the_middle_of_a_portion_leaves_the_rest_to_others",
        "client/test_at_most_once.py::test_a_message_that_a_handler_fails_at_is_not_handled_again",
    ),
    "At most once all is processed when": (
        "client/test_at_most_once.py::test_a_message_that_a_handler_fails_at_is_not_handled_again",
    ),
    "Other clients commit by the clock": ("modes/test_consumer_loss.py::test_commits_by_the_clock_lose_it_too",),
    "`test_commits_by_the_clock_lose_it_too` shows": (
        "modes/test_consumer_loss.py::test_commits_by_the_clock_lose_it_too",
    ),
    "At-least-once and work that may be done twice": EXPLAINS,
    "Read, process, write: the results": (
        "modes/test_delivery_page.py::test_the_example_copies_everything_once",
        "client/consumer_contract.py::test_consume_transform_produce",
    ),
    "It holds within the log: both ends are topics": (
        "client/consumer_contract.py::test_a_transaction_is_seen_whole_or_not_at_all",
    ),
    "`isolation.level=read_committed` elsewhere": (
        "compat/test_transactions.py::test_what_is_aborted_is_not_seen_and_its_offsets_do_not_count",
    ),
    "A mail that the handler sends is sent again": (
        "client/test_consumer.py::test_an_aborted_batch_comes_again_exactly_once",
        "client/test_run_exactly_once.py::test_what_a_failed_attempt_has_sent_is_undone",
    ),
    "To another store, write the offset together": ("client/test_reader.py::test_from_anywhere_to_anywhere",),
    "Who was thrown out of its group": (
        "modes/test_consumer_duplicates.py::test_exactly_once_refuses_the_work_of_who_was_too_slow",
        "modes/test_consumer_duplicates.py::test_and_of_who_was_thrown_out_of_the_group",
        "client/test_consumer_stale.py::test_offsets_of_what_the_user_does_not_know_yet_are_not_sent",
    ),
    "**How it is held to it.**": ("modes/test_exactly_once.py::test_a_run_on_a_bad_network_has_no_anomalies",),
    "All the while it kills any of them": ("modes/test_exactly_once.py::test_a_run_on_a_bad_network_has_no_anomalies",),
    "Then a checker reads what each of them did": (
        "modes/test_exactly_once.py::test_a_run_on_a_bad_network_has_no_anomalies",
    ),
    "It runs for seconds in the suite": ("modes/test_exactly_once.py::test_a_run_on_a_bad_network_has_no_anomalies",),
    "`python -m tests.modes.checked_run": EXPLAINS,
    "Runs of 240 s": EXPLAINS,
}
