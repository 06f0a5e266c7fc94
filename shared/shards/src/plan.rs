//! Who should own which shard: even shares with the fewest moves. A pure function of what was read, so that processes that have read the
//! same agree without talking; where they have not, the compare-and-set of the lease decides and the next read corrects.

use crate::rendezvous;
use harvest_ids::ShardId;
use std::collections::{BTreeMap, BTreeSet};

/// A shard as its lease shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Held by this process.
    Held(String),
    /// Released or expired: free to take.
    Free,
}

/// What to do next, from the viewpoint of one process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Plan {
    /// Free shards that this process should take now.
    pub acquire: Vec<ShardId>,
    /// Free shards that others should take: this process takes them when nobody does.
    pub left_to_others: Vec<ShardId>,
    /// Shards of this process that others should have.
    pub hand_over: Vec<(ShardId, String)>,
    /// Whether other processes are about to hand shards over to this one.
    pub expecting: bool,
}

/// Plans for `me`. `members` are the live processes, `targets` those of them that may be given shards; `me` counts as both.
pub(crate) fn plan(me: &str, members: &BTreeSet<String>, targets: &BTreeSet<String>, shards: &BTreeMap<ShardId, Standing>) -> Plan {
    let mut shares: BTreeMap<&str, Vec<ShardId>> = members.iter().chain(targets).map(|name| (name.as_str(), Vec::new())).collect();
    shares.entry(me).or_default();
    let target = |name: &str| name == me || targets.contains(name);
    let mut free = Vec::new();
    let mut plan = Plan::default();
    for (shard, standing) in shards {
        match standing {
            // A holder that is no member is leaving: it hands over by itself.
            Standing::Held(owner) => match shares.get_mut(owner.as_str()) {
                Some(share) => share.push(*shard),
                None => plan.expecting = true,
            },
            Standing::Free => free.push(*shard),
        }
    }
    let held_by_me = shares.get(me).cloned().unwrap_or_default();
    for shard in free {
        let key = shard.to_string();
        let fewest = shares.iter().filter(|(name, _)| target(name)).map(|(_, share)| share.len()).min().unwrap_or(0);
        let candidates = shares.iter().filter(|(name, share)| target(name) && share.len() == fewest).map(|(name, _)| *name);
        let Some(taker) = rendezvous::pick(&key, candidates, |name| name) else { continue };
        shares.entry(taker).or_default().push(shard);
        if taker == me { plan.acquire.push(shard) } else { plan.left_to_others.push(shard) }
    }
    while let Some((from, to)) = uneven(&shares, target) {
        let share = shares.get_mut(from).expect("it was found in the map");
        let heaviest = share.iter().copied().enumerate().max_by_key(|(_, shard)| rendezvous::weight(&shard.to_string(), to));
        let (index, shard) = heaviest.expect("the largest share is not empty");
        share.remove(index);
        shares.entry(to).or_default().push(shard);
        plan.expecting |= to == me;
        if from == me && held_by_me.contains(&shard) {
            plan.hand_over.push((shard, to.to_owned()));
        }
    }
    plan
}

/// A process that has at least two shards more than one that may be given some: (largest share, smallest share).
fn uneven<'a>(shares: &BTreeMap<&'a str, Vec<ShardId>>, target: impl Fn(&str) -> bool) -> Option<(&'a str, &'a str)> {
    let (most, most_count) = shares.iter().map(|(name, share)| (*name, share.len())).max_by_key(|(name, count)| (*count, std::cmp::Reverse(*name)))?;
    let (least, least_count) =
        shares.iter().map(|(name, share)| (*name, share.len())).filter(|(name, _)| target(name)).min_by_key(|(name, count)| (*count, *name))?;
    (most_count >= least_count + 2).then_some((most, least))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn standings(owners: &[&str]) -> BTreeMap<ShardId, Standing> {
        let standing = |owner: &str| match owner {
            "" => Standing::Free,
            owner => Standing::Held(owner.to_owned()),
        };
        owners.iter().zip(0..).map(|(owner, shard)| (ShardId(shard), standing(owner))).collect()
    }

    #[test]
    fn two_processes_that_start_together_share_all_free_shards_evenly_and_without_overlap() {
        let (members, shards) = (names(&["a", "b"]), standings(&[""; 16]));
        let (a, b) = (plan("a", &members, &members, &shards), plan("b", &members, &members, &shards));
        assert_eq!((a.acquire.len(), b.acquire.len()), (8, 8));
        assert_eq!((&a.left_to_others, &b.left_to_others), (&b.acquire, &a.acquire));
        assert!(a.hand_over.is_empty() && b.hand_over.is_empty());
    }

    #[test]
    fn a_newcomer_is_handed_its_share_and_nothing_else_moves() {
        let (members, shards) = (names(&["a", "b", "c"]), standings(&["a", "a", "a", "b", "b", "b"]));
        let plans = ["a", "b", "c"].map(|me| plan(me, &members, &members, &shards));
        assert_eq!(plans[0].hand_over.len() + plans[1].hand_over.len(), 2);
        assert!(plans[0].hand_over.iter().chain(&plans[1].hand_over).all(|(_, to)| to == "c"));
        assert!(plans[2].expecting && !plans[0].expecting);
    }

    #[test]
    fn shares_that_differ_by_one_stay() {
        let (members, shards) = (names(&["a", "b"]), standings(&["a", "a", "b"]));
        assert_eq!(plan("a", &members, &members, &shards), Plan::default());
    }

    #[test]
    fn a_dead_owners_shards_go_to_the_survivors_though_it_is_still_listed() {
        let (members, shards) = (names(&["a", "b", "dead"]), standings(&["a", "a", "b", "b", "", ""]));
        let targets = names(&["a", "b"]);
        let (a, b) = (plan("a", &members, &targets, &shards), plan("b", &members, &targets, &shards));
        assert_eq!((a.acquire.len(), b.acquire.len()), (1, 1));
        assert!(a.hand_over.is_empty() && b.hand_over.is_empty());
    }

    #[test]
    fn shards_of_a_leaving_owner_are_expected_and_not_taken() {
        let (members, shards) = (names(&["a"]), standings(&["leaving", "a"]));
        let plan = plan("a", &members, &members, &shards);
        assert!(plan.expecting && plan.acquire.is_empty());
    }
}
