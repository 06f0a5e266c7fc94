//! Who is where, as the test says.

use super::SHARDS;
use async_trait::async_trait;
use harvest_ids::{Epoch, SLOT_COUNT, ShardId};
use harvest_persistence::control::{DirectoryStore, Lease, Member, ServiceKind};
use harvest_persistence::error::StoreError;
use std::collections::BTreeMap;
use std::sync::Mutex;

#[derive(Default)]
pub struct FakeDirectory {
    members: Mutex<BTreeMap<String, Member>>,
    leases: Mutex<BTreeMap<ShardId, (String, String)>>,
}

impl FakeDirectory {
    pub fn add(&self, service: ServiceKind, process_id: &str, address: &str) {
        let member = Member { service, process_id: process_id.to_owned(), address: address.to_owned() };
        self.members.lock().unwrap().insert(process_id.to_owned(), member);
    }

    pub fn remove(&self, process_id: &str) {
        self.members.lock().unwrap().remove(process_id);
    }

    pub fn own(&self, shard: u32, process_id: &str, address: &str) {
        self.leases.lock().unwrap().insert(ShardId(shard), (process_id.to_owned(), address.to_owned()));
    }

    pub fn disown(&self, shard: u32) {
        self.leases.lock().unwrap().remove(&ShardId(shard));
    }

    pub fn frontends(&self) -> usize {
        self.members.lock().unwrap().values().filter(|member| member.service == ServiceKind::Frontend).count()
    }
}

#[async_trait]
impl DirectoryStore for FakeDirectory {
    async fn announce_member(&self, member: &Member, _: u64) -> Result<(), StoreError> {
        self.members.lock().unwrap().insert(member.process_id.clone(), member.clone());
        Ok(())
    }
    async fn remove_member(&self, process_id: &str) -> Result<(), StoreError> {
        self.remove(process_id);
        Ok(())
    }
    async fn members(&self) -> Result<Vec<Member>, StoreError> {
        Ok(self.members.lock().unwrap().values().cloned().collect())
    }
    async fn leases(&self) -> Result<Vec<Lease>, StoreError> {
        let lease = |(shard_id, (owner, address)): (&ShardId, &(String, String))| Lease {
            shard_id: *shard_id,
            owner: Some(owner.clone()),
            address: Some(address.clone()),
            remaining_ms: 2_000,
            epoch: Epoch(3),
        };
        Ok(self.leases.lock().unwrap().iter().map(lease).collect())
    }
    async fn renew_leases(&self, _: &str, _: u64) -> Result<Vec<ShardId>, StoreError> {
        Ok(Vec::new())
    }
    async fn acquire_lease(&self, _: ShardId, _: &str, _: &str, _: u64) -> Result<bool, StoreError> {
        Ok(false)
    }
    async fn release_lease(&self, _: ShardId, _: &str) -> Result<(), StoreError> {
        Ok(())
    }
    async fn transfer_lease(&self, _: ShardId, _: &str, _: &Member, _: u64) -> Result<bool, StoreError> {
        Ok(false)
    }
    async fn slot_map(&self) -> Result<(u64, Vec<ShardId>), StoreError> {
        Ok((1, (0..u32::from(SLOT_COUNT)).map(|slot| ShardId(slot % SHARDS)).collect()))
    }
}
