//! What a worker is running is told to the owners of the runs' shards.

use crate::edge::Edge;
use bytes::Bytes;
use futures::StreamExt as _;
use harvest_ids::{ShardId, Slot, WorkerId};
use harvest_proto::internal::v1::AnnounceCall;
use harvest_proto::v1::AnnounceReply;
use harvest_wire::token;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Most attempts that one session may announce.
pub(super) const MAX_ATTEMPTS: usize = 10_000;
/// How long one owner is waited for: less than the interval of announcements.
const OWNER_TIMEOUT: Duration = Duration::from_secs(4);
/// How many owners are asked at once.
const OWNERS_AT_ONCE: usize = 16;

/// What the owners said of one announcement.
pub(super) struct Announced {
    reply: AnnounceReply,
    /// Attempts that their owner has answered for.
    answered: Vec<Bytes>,
    /// Attempts whose owner did not answer.
    unanswered: Vec<Bytes>,
}

/// Asks all owners. One that cannot be reached gives no answer for its attempts.
pub(super) async fn ask(edge: Arc<Edge>, worker_id: WorkerId, tokens: Vec<Bytes>) -> Announced {
    let mut announced = Announced { reply: AnnounceReply::default(), answered: Vec::new(), unanswered: Vec::new() };
    let mut shards: BTreeMap<ShardId, (Slot, Vec<Bytes>)> = BTreeMap::new();
    for bytes in tokens {
        // A token that does not decode is nobody's: whoever runs it must stop.
        let Ok(token) = token::decode(&bytes) else {
            announced.reply.lost.push(bytes);
            continue;
        };
        let slot = token.execution_id.slot();
        match edge.router.shard_of(slot) {
            Ok(shard) => shards.entry(shard).or_insert_with(|| (slot, Vec::new())).1.push(bytes),
            Err(_) => announced.unanswered.push(bytes),
        }
    }
    let deadline = edge.deadline_in(OWNER_TIMEOUT);
    let (edge, worker_id) = (&edge, worker_id.as_str());
    let asked = shards.into_values().map(|(slot, tokens)| async move {
        let make = |shard_id| AnnounceCall { shard_id, worker_id: worker_id.to_owned(), task_tokens: tokens.clone() };
        let answer = edge.router.call(slot, deadline, make, |mut client, call| async move { client.announce(call).await }).await;
        (tokens, answer)
    });
    let mut asked = std::pin::pin!(futures::stream::iter(asked).buffer_unordered(OWNERS_AT_ONCE));
    while let Some((tokens, answer)) = asked.next().await {
        match answer {
            Ok(reply) => {
                announced.reply.cancel_requested.extend(reply.cancel_requested);
                announced.reply.lost.extend(reply.lost);
                announced.answered.extend(tokens);
            }
            Err(error) => {
                tracing::debug!(worker_id, attempts = tokens.len(), %error, "an owner did not answer an announcement");
                announced.unanswered.extend(tokens);
            }
        }
    }
    announced
}

/// Since when the owners of a session's attempts have been silent. The reply to a worker covers all of its attempts, so that the silence of
/// one owner is counted here: after the announce timeout its attempts are declared lost.
#[derive(Default)]
pub(super) struct Silence {
    last_answer: BTreeMap<Bytes, Duration>,
}

impl Silence {
    /// Turns the owners' answers into the reply to the worker.
    pub(super) fn reply(&mut self, now: Duration, timeout: Duration, announced: Announced) -> AnnounceReply {
        let Announced { mut reply, answered, unanswered } = announced;
        let before = std::mem::take(&mut self.last_answer);
        self.last_answer.extend(answered.into_iter().map(|token| (token, now)));
        for token in unanswered {
            let since = before.get(&token).copied().unwrap_or(now);
            if now.saturating_sub(since) >= timeout {
                reply.lost.push(token);
            } else {
                self.last_answer.insert(token, since);
            }
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(answered: &[&'static str], unanswered: &[&'static str]) -> Announced {
        let tokens = |names: &[&'static str]| names.iter().map(|name| Bytes::from_static(name.as_bytes())).collect();
        Announced { reply: AnnounceReply::default(), answered: tokens(answered), unanswered: tokens(unanswered) }
    }

    #[test]
    fn an_attempt_is_lost_after_its_owner_was_silent_for_the_announce_timeout() {
        let (mut silence, timeout) = (Silence::default(), Duration::from_secs(8));
        let mut at = |second, announced| silence.reply(Duration::from_secs(second), timeout, announced).lost;
        assert!(at(100, said(&["a"], &["b"])).is_empty());
        assert!(at(105, said(&[], &["a", "b"])).is_empty());
        // The last answer for `a` was at 100, `b` was first seen at 100.
        assert!(at(107, said(&["b"], &["a"])).is_empty());
        assert_eq!(at(108, said(&[], &["a", "b"])), ["a"]);
        assert_eq!(at(115, said(&[], &["b"])), ["b"]);
    }
}
