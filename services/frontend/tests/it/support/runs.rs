//! A store that lists what the test put there.

use async_trait::async_trait;
use bytes::Bytes;
use harvest_ids::{Epoch, EventId, ExecutionId, ShardId, Timestamp};
use harvest_persistence::batch::{BatchId, DueRow, OutboxRow, RunRow, TaskRow};
use harvest_persistence::error::StoreError;
use harvest_persistence::store::{BacklogQueue, BusinessKey, Fence, Recovery, RunFilter, ShardStore, ShardWriter, StoredRun};
use harvest_workflow_core::state::Status;
use std::sync::Mutex;

#[derive(Default)]
pub struct FakeRuns {
    pub rows: Mutex<Vec<RunRow>>,
    pub filters: Mutex<Vec<RunFilter>>,
}

fn no<T>() -> Result<T, StoreError> {
    Err(StoreError::Refused("the frontend only lists".into()))
}

#[async_trait]
impl ShardStore for FakeRuns {
    async fn take_over(&self, _: ShardId) -> Result<Fence, StoreError> {
        no()
    }
    async fn open_writer(&self, _: ShardId, _: Epoch) -> Result<Box<dyn ShardWriter>, StoreError> {
        no()
    }
    async fn settle(&self, _: BatchId) -> Result<Option<Fence>, StoreError> {
        no()
    }
    async fn epoch(&self, _: ShardId) -> Result<Epoch, StoreError> {
        no()
    }
    async fn recovery(&self, _: ShardId) -> Result<Recovery, StoreError> {
        no()
    }
    async fn load_run(&self, _: ShardId, _: ExecutionId) -> Result<Option<StoredRun>, StoreError> {
        no()
    }
    async fn find_runs(&self, _: ShardId, _: &[BusinessKey]) -> Result<Vec<Option<(ExecutionId, Status)>>, StoreError> {
        no()
    }
    async fn history(&self, _: ShardId, _: ExecutionId, _: EventId, _: usize) -> Result<Vec<Bytes>, StoreError> {
        no()
    }
    async fn backlog_queues(&self, _: ShardId) -> Result<Vec<BacklogQueue>, StoreError> {
        no()
    }
    async fn backlog(&self, _: ShardId, _: &BacklogQueue, _: i64, _: u32) -> Result<Vec<TaskRow>, StoreError> {
        no()
    }
    async fn outbox(&self, _: ShardId, _: i64, _: u32) -> Result<Vec<OutboxRow>, StoreError> {
        no()
    }
    async fn due(&self, _: &[ShardId], _: Timestamp, _: u32) -> Result<Vec<(ShardId, DueRow)>, StoreError> {
        no()
    }
    async fn list(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        self.filters.lock().unwrap().push(filter.clone());
        let limit = usize::try_from(filter.limit).unwrap();
        Ok(self.rows.lock().unwrap().iter().take(limit).cloned().collect())
    }
}
