//! What every store must do, as one suite over the traits: run by the tests of both implementations. Test support only.
//!
//! [`conformance_suite!`](crate::conformance_suite) makes one test of each case. A case gets a fresh store with [`SHARDS`] shards and panics
//! where the store is wrong.

pub mod commits;
pub mod control;
pub mod fixture;
pub mod reads;

use crate::control::{ConfigStore, DirectoryStore};
use crate::store::ShardStore;
use std::sync::Arc;

/// How many shards the store of a case has.
pub const SHARDS: u32 = 4;

/// A store by its three faces.
#[derive(Clone)]
pub struct Subject {
    /// Runs.
    pub runs: Arc<dyn ShardStore>,
    /// Membership, leases, slots.
    pub directory: Arc<dyn DirectoryStore>,
    /// Configuration.
    pub config: Arc<dyn ConfigStore>,
}

impl Subject {
    /// A store that is all three.
    pub fn new<S: ShardStore + DirectoryStore + ConfigStore>(store: S) -> Self {
        let store = Arc::new(store);
        Self { runs: store.clone(), directory: store.clone(), config: store }
    }
}

/// Makes a `#[tokio::test]` of every case; the argument is an expression that makes a fresh [`Subject`] and may await.
#[macro_export]
macro_rules! conformance_suite {
    ($subject:expr) => {
        $crate::conformance_suite!(@cases $subject;
            commits::a_committed_batch_is_read_back_whole
            commits::every_kind_of_row_changes_and_goes
            commits::a_wrong_epoch_with_every_array_full_changes_nothing
            commits::a_second_open_run_of_a_business_key_is_poison_and_writes_nothing
            commits::a_run_may_close_and_its_successor_open_in_one_batch
            commits::a_row_that_is_born_and_gone_elsewhere_in_the_batch_does_not_collide
            commits::a_missing_row_is_poison_and_writes_nothing
            commits::a_second_history_row_of_one_number_is_poison
            commits::a_takeover_fences_the_old_writer
            commits::settling_tells_a_batch_that_landed_from_one_that_did_not
            commits::settling_a_lost_shard_says_so
            commits::a_full_batch_of_256_runs_commits
            commits::an_empty_batch_moves_the_fence_only
            commits::bytes_that_no_text_can_hold_survive
            commits::shards_do_not_see_each_other
            commits::a_shard_that_does_not_exist_is_refused
            reads::find_run_prefers_the_open_run_and_then_the_newest_closed
            reads::history_is_read_by_event_and_by_bytes
            reads::control_records_before_an_event_are_skipped_or_kept_whole
            reads::backlog_pages_by_queue_kind_and_sequence
            reads::outbox_pages_in_order
            reads::due_rows_come_earliest_first_from_the_shards_asked_for
            reads::recovery_finds_the_highest_sequences
            reads::lists_page_newest_first_over_all_shards
            reads::lists_filter
            reads::marks_filter_lists
            control::members_come_and_expire
            control::a_lease_is_taken_once_and_renewed_by_its_owner
            control::an_expired_lease_is_free_for_all
            control::a_lease_is_released_or_given_to_a_successor_by_its_owner_alone
            control::every_slot_has_a_shard
            control::limits_change_by_compare_and_set
            control::an_older_acknowledgement_never_replaces_a_newer
            control::types_are_replaced_by_their_newest_declaration
            control::workers_are_reported_ended_and_forgotten
        );
    };
    (@cases $subject:expr; $($module:ident :: $case:ident)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                $crate::conformance::$module::$case(&$subject).await;
            }
        )*
    };
}
