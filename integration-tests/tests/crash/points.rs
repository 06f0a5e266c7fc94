//! Every named point of the services, killed and frozen there.

use crate::strike::{How, Strike, run};

macro_rules! strikes {
    ($($name:ident: $victim:literal at $point:literal pass $nth:literal, $how:ident;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                run(Strike { victim: $victim, point: $point, nth: $nth, how: How::$how }).await;
            }
        )*
    };
}

strikes! {
    an_owner_killed_before_it_sends_a_batch_loses_nothing_acknowledged: "history-1" at "history.before_send" pass 30, Kill;
    an_owner_frozen_before_it_sends_a_batch_writes_nothing_late: "history-1" at "history.before_send" pass 30, Stop;
    an_owner_killed_with_its_statement_in_flight_loses_nothing_acknowledged: "history-1" at "history.in_flight" pass 30, Kill;
    an_owner_frozen_with_its_statement_in_flight_blocks_no_takeover: "history-1" at "history.in_flight" pass 30, Stop;
    an_owner_killed_between_commit_and_reply_doubles_nothing: "history-1" at "history.committed" pass 30, Kill;
    an_owner_frozen_between_commit_and_reply_answers_nothing_late: "history-1" at "history.committed" pass 30, Stop;
    an_owner_killed_after_an_offer_leaves_no_task_behind: "history-1" at "history.offered" pass 20, Kill;
    an_owner_frozen_after_an_offer_leaves_no_task_behind: "history-1" at "history.offered" pass 20, Stop;
    an_owner_killed_between_delivery_and_removal_of_a_message_delivers_it_once: "history-1" at "history.delivered" pass 2, Kill;
    an_owner_frozen_between_delivery_and_removal_of_a_message_delivers_it_once: "history-1" at "history.delivered" pass 2, Stop;
    a_matching_process_killed_with_a_taken_task_in_hand_loses_no_task: "matching-1" at "matching.taken" pass 10, Kill;
    a_matching_process_frozen_with_a_taken_task_in_hand_loses_no_task: "matching-1" at "matching.taken" pass 10, Stop;
    a_frontend_killed_with_a_forwarded_call_in_hand_starts_nothing_twice: "frontend-1" at "frontend.forwarded" pass 10, Kill;
    a_frontend_frozen_with_a_forwarded_call_in_hand_starts_nothing_twice: "frontend-1" at "frontend.forwarded" pass 10, Stop;
    a_timer_scanner_killed_after_reading_loses_no_timer: "timer-scanner-1" at "timer_scanner.read" pass 2, Kill;
    a_timer_scanner_frozen_after_reading_loses_no_timer: "timer-scanner-1" at "timer_scanner.read" pass 2, Stop;
}
