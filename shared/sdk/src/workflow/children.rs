//! Child workflows.

use crate::definition::WorkflowDefinition;
use crate::error::HarvestError;
use crate::options::{ChildOptions, span, task_queue};
use crate::payload;
use crate::workflow::context::WorkflowContext;
use crate::workflow::future::{ChildFuture, ItemFuture};
use harvest_ids::{WorkflowId, WorkflowType};
use harvest_sdk_replay::Handle;
use harvest_workflow_core::command::StartChildWorkflow;
use harvest_workflow_core::payload::Payload;
use serde::Serialize;
use serde::de::DeserializeOwned;

impl WorkflowContext {
    /// Starts a child run; the future waits for its result: `ctx.spawn_child_workflow(&ship, order).await?`.
    ///
    /// # Errors
    /// The future's: [`HarvestError::ChildFailed`], [`HarvestError::Cancelled`], or what is wrong with the call.
    pub fn spawn_child_workflow<W: WorkflowDefinition>(&self, workflow: &impl Fn() -> W, input: W::Input) -> ChildFuture<W::Output> {
        self.spawn_child_workflow_with_opts(workflow, input, ChildOptions::default())
    }

    /// The same with options.
    pub fn spawn_child_workflow_with_opts<W: WorkflowDefinition>(
        &self,
        _workflow: &impl Fn() -> W,
        input: W::Input,
        mut options: ChildOptions,
    ) -> ChildFuture<W::Output> {
        options.execution_timeout = options.execution_timeout.or_else(W::execution_timeout);
        self.awaited_child(W::NAME, payload::to_payload("child input", &input), &options)
    }

    /// Starts a child run by the name of its type, with any JSON.
    pub fn spawn_child_workflow_raw<T: DeserializeOwned>(&self, workflow_type: &str, input: impl Serialize, options: ChildOptions) -> ChildFuture<T> {
        self.awaited_child(workflow_type, payload::to_payload("child input", &input), &options)
    }

    /// Starts a child run that lives on its own: nobody waits for it, it survives its parent. Returns its business key.
    ///
    /// # Errors
    /// What is wrong with the call. Whether the child really started is not told.
    pub fn spawn_child_workflow_detached<W: WorkflowDefinition>(
        &self,
        _workflow: &impl Fn() -> W,
        input: W::Input,
        mut options: ChildOptions,
    ) -> Result<String, HarvestError> {
        options.execution_timeout = options.execution_timeout.or_else(W::execution_timeout);
        let workflow_id = self.child_id(&options);
        let handle = self.ask_child(W::NAME, &workflow_id, payload::to_payload("child input", &input), &options, true)?;
        self.shared.lock().machine.abandon(handle);
        Ok(workflow_id)
    }

    fn awaited_child<T: DeserializeOwned>(&self, name: &str, input: Result<Payload, HarvestError>, options: &ChildOptions) -> ChildFuture<T> {
        let workflow_id = self.child_id(options);
        let asked = self.ask_child(name, &workflow_id, input, options, false);
        ChildFuture::new(ItemFuture::new(&self.shared, asked), name, workflow_id)
    }

    fn child_id(&self, options: &ChildOptions) -> String {
        let number = self.shared.lock().next_name();
        options.workflow_id.clone().unwrap_or_else(|| format!("{}/{number}", self.started.execution_id))
    }

    fn ask_child(&self, name: &str, id: &str, input: Result<Payload, HarvestError>, options: &ChildOptions, detached: bool) -> Result<Handle, HarvestError> {
        let child = StartChildWorkflow {
            workflow_type: WorkflowType::new(name).map_err(|error| HarvestError::invalid("workflow_type", error))?,
            workflow_id: WorkflowId::new(id).map_err(|error| HarvestError::invalid("workflow_id", error))?,
            task_queue: task_queue(options.task_queue.as_deref())?,
            input: input?,
            execution_timeout: span("execution_timeout", options.execution_timeout)?,
            detached,
        };
        Ok(self.shared.lock().machine.start_child_workflow(child))
    }
}
