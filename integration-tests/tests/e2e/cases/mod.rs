//! The cases, one module per feature. Each has a tenant of its own; the workflows of a case are beside it.

use harvest_integration_tests::cases;
use harvest_integration_tests::suite::Case;

mod activities;
mod activity_defaults;
mod activity_timeouts;
mod bad_input;
mod chain_timeout;
mod children;
mod code_changes;
mod continue_as_new;
mod eager_start;
mod endings;
mod limits;
mod lists;
mod local_activities;
mod pause;
mod queries;
mod side_effects;
mod signals;
mod sla;
mod starts;
mod timers;
mod workers;

/// All of them.
pub fn all() -> Vec<Case> {
    // The slow ones first: they wait for back-offs.
    cases![
        code_changes::a_change_of_code_blocks_the_run_visibly_until_fitting_code_comes_back,
        code_changes::a_panic_in_workflow_code_is_retried_and_then_a_typed_failure,
        workers::a_worker_that_is_terminated_finishes_what_it_runs_and_takes_nothing_more,
        workers::garbage_stale_and_stolen_tokens_are_refused_and_harm_nobody,
        workers::connected_workers_are_listed_with_their_code,
        continue_as_new::reference_12_an_entity_continues_before_its_timeout_ends_it,
        local_activities::reference_03_a_hanging_local_activity_is_ended_at_the_cap_and_may_outlast_a_workflow_task,
        local_activities::reference_01_a_local_activity_without_any_policy_is_tried_once,
        local_activities::local_activities_run_within_one_workflow_task_and_are_recorded,
        sla::reference_06_a_late_run_is_counted_once_and_completes_as_ever,
        sla::reference_07_an_sla_is_never_beyond_the_timeout_and_a_start_may_bring_its_own,
        sla::reference_08_a_pause_puts_the_sla_off_by_its_length,
        pause::reference_09_a_chain_whose_time_passed_in_a_pause_ends_when_it_goes_on,
        pause::a_paused_run_does_nothing_keeps_what_comes_and_goes_on,
        pause::a_pause_ends_by_itself_and_another_start_finds_the_paused_run,
        pause::pausing_over_http_says_what_changed_and_what_is_allowed,
        activities::a_result_reaches_the_workflow_and_the_caller,
        activities::a_failing_activity_is_tried_again_by_its_policy_under_one_key,
        activities::attempts_run_out_with_the_last_failure,
        activities::a_non_retryable_failure_ends_at_the_first_attempt,
        activities::a_panic_in_an_activity_is_a_typed_failure,
        activities::many_activities_at_once_all_come_back_in_their_places,
        activities::a_cancelled_activity_learns_of_it_by_its_heartbeat,
        activity_timeouts::a_hanging_attempt_is_ended_and_tried_again,
        activity_timeouts::the_last_hanging_attempt_is_a_timeout,
        activity_timeouts::an_activity_that_nobody_takes_times_out_in_its_queue,
        activity_timeouts::reference_04_all_attempts_together_have_a_budget,
        activity_timeouts::reference_05_no_attempt_is_waited_for_that_would_begin_after_the_budget,
        activity_defaults::reference_01_an_activity_without_any_policy_is_tried_three_times,
        activity_defaults::reference_02_the_call_site_beats_the_attribute_which_beats_the_workers_floor,
        activity_defaults::an_activity_called_by_name_has_the_attribute_that_another_worker_registers,
        activity_timeouts::a_silent_attempt_is_ended_and_its_details_reach_the_next,
        chain_timeout::reference_10_a_chain_ends_at_the_instant_that_its_first_run_has_set,
        chain_timeout::reference_11_the_ceiling_of_chains_is_the_default_of_each_but_not_of_a_child,
        timers::a_timer_fires_after_its_time_and_not_before,
        timers::a_cancelled_timer_never_fires,
        timers::timers_fire_in_the_order_of_their_deadlines,
        signals::a_signal_sent_before_the_code_asks_is_kept,
        signals::signals_arrive_in_order_and_one_request_id_counts_once,
        signals::a_wait_for_a_signal_can_run_out,
        signals::a_closed_run_takes_no_signal,
        side_effects::recorded_values_are_the_same_on_every_replay,
        endings::code_that_looks_is_cancelled_and_code_that_does_not_runs_on,
        endings::a_terminated_run_ends_without_being_asked,
        endings::a_run_over_its_execution_timeout_ends,
        endings::a_failure_keeps_its_type_message_and_details,
        continue_as_new::unread_signals_travel_along_a_chain,
        continue_as_new::a_chain_may_change_its_type,
        children::results_and_failures_of_children_reach_the_parent,
        children::children_on_every_shard_come_back,
        children::a_detached_child_outlives_its_parent,
        children::an_awaited_child_is_cancelled_with_its_parent,
        children::children_cancelled_right_after_their_start_are_cancelled,
        children::a_child_whose_key_is_taken_is_a_typed_failure,
        queries::code_answers_queries_and_they_leave_no_trace,
        queries::unknown_and_failing_queries_are_typed_errors,
        starts::a_second_start_of_an_open_run_finds_it,
        starts::a_start_on_a_queue_that_nobody_serves_warns_and_waits,
        starts::fifty_starts_of_one_key_at_once_make_one_run,
        eager_start::a_start_in_the_workers_process_brings_its_first_task,
        lists::runs_are_listed_by_state_type_and_key_page_by_page,
        limits::a_limit_that_no_shard_has_pending_holds_for_every_start,
        bad_input::every_malformed_call_is_a_typed_error_that_names_its_field,
        bad_input::nothing_of_a_refused_call_is_stored,
    ]
}
