//! No console.

use std::net::SocketAddr;
use std::sync::Arc;

use kubelet_core::runtime::ContainerLogs;
use kubelet_core::{Clock, KubeletHandle};

use super::server;
use crate::context::Context;
use crate::error::Result;
use crate::problem::Problems;
use crate::rooms::events::Recorders;
use crate::tasks::Tasks;

#[derive(Default)]
pub(crate) struct Parts {}

pub(crate) fn check(_: &Parts, _: bool, _: &mut Problems) {}

pub(crate) struct ConsoleRoom;

impl ConsoleRoom {
    pub(crate) fn open(_: Parts, _: &mut Recorders, _: Clock) -> Self {
        Self
    }

    pub(crate) fn start(
        self,
        _: &Context,
        _: &KubeletHandle,
        _: Option<Arc<dyn ContainerLogs>>,
        _: &mut server::Parts,
        _: &mut Tasks,
    ) -> Result<Option<SocketAddr>> {
        Ok(None)
    }
}
