//! Worker sessions say which attempts they are running.

use super::Envelope;
use super::actor::{Actor, Happening};
use super::batch::Riding;
use super::operation::{Answer, Operation, Refusal, Target};
use harvest_workflow_core::decision::{Reject, Reply};
use harvest_workflow_core::input::{Input, TaskToken};
use tokio::sync::oneshot;

/// What is said of announced attempts.
#[derive(Debug, Default)]
struct Said {
    cancel_requested: Vec<TaskToken>,
    lost: Vec<TaskToken>,
}

impl Said {
    fn accepted(&mut self, token: TaskToken, cancel_requested: bool) {
        if cancel_requested {
            self.cancel_requested.push(token);
        }
    }

    fn rejected(&mut self, token: TaskToken, reject: &Reject) {
        match reject {
            Reject::Closed { .. } | Reject::StaleTask { .. } | Reject::NotPending | Reject::NotFound => self.lost.push(token),
            Reject::BadCommand { .. } | Reject::BadDecision { .. } | Reject::Limit { .. } | Reject::AlreadyStarted => {}
        }
    }

    /// The answer to the announcement of one attempt of a run that had to be loaded.
    ///
    /// # Errors
    /// When nothing can be said of any attempt now.
    fn of_loaded(&mut self, token: TaskToken, answer: Result<Answer, Refusal>) -> Result<(), Refusal> {
        match answer {
            Ok(Answer::Decided { cancel_requested, .. }) => self.accepted(token, cancel_requested),
            Err(Refusal::Reject(reject)) => self.rejected(token, &reject),
            Err(Refusal::NotFound) => self.lost.push(token),
            Err(refusal @ (Refusal::NotOwner | Refusal::Unavailable(_) | Refusal::StoreAway | Refusal::Overloaded { .. })) => return Err(refusal),
            // Nothing is said of this one; the session's other attempts must not suffer.
            Ok(_) | Err(_) => tracing::debug!(run = %token.execution_id, "an announced attempt could not be looked at"),
        }
        Ok(())
    }
}

impl From<Said> for Answer {
    fn from(Said { cancel_requested, lost }: Said) -> Self {
        Self::Announced { cancel_requested, lost }
    }
}

impl Actor {
    /// The answer speaks of all attempts, so that it waits until their runs are in memory: whoever has it knows that they are watched, and
    /// that those whose start was lost with an old owner are adopted.
    pub(crate) fn announce(&mut self, envelope: Envelope) {
        let Operation::Announce { worker_id, tokens } = &envelope.operation else { return };
        let (worker_id, tokens) = (worker_id.clone(), tokens.clone());
        let (mut said, mut absent) = (Said::default(), Vec::new());
        for token in tokens {
            let id = token.execution_id;
            let input = Input::AnnounceActivity { token: token.clone(), worker_id: worker_id.clone() };
            if !self.cache.contains(id) {
                absent.push((token, input));
                continue;
            }
            match self.decide(id, &input, true) {
                Ok(reply) => {
                    self.note_sign_of_life(id, &input);
                    self.note_volatile_deadline(id);
                    said.accepted(token, reply == Reply::Progress { cancel_requested: true });
                }
                Err(reject) => said.rejected(token, &reject),
            }
        }
        if absent.is_empty() {
            self.ride(None, envelope, Ok(said.into()));
            return;
        }
        // Each gets an announcement of its own, which loads its run.
        let loading: Vec<_> = absent.into_iter().map(|(token, input)| self.announce_one(token, input)).collect();
        self.spawn(async move {
            for (token, answer) in loading {
                if let Err(refusal) = said.of_loaded(token, answer.await.unwrap_or(Err(Refusal::NotOwner))) {
                    return Happening::Announced(Box::new(Riding { envelope, answer: Err(refusal) }));
                }
            }
            Happening::Announced(Box::new(Riding { envelope, answer: Ok(said.into()) }))
        });
    }

    fn announce_one(&mut self, token: TaskToken, input: Input) -> (TaskToken, oneshot::Receiver<Result<Answer, Refusal>>) {
        let (responder, answer) = oneshot::channel();
        let target = Target::Execution(token.execution_id);
        self.take(Envelope { operation: Operation::Input { target, follow_chain: false, input }, responder, permit: None });
        (token, answer)
    }
}
