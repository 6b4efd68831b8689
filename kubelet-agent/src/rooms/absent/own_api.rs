//! No API server in the process.

use kubelet_core::{Clock, Disk};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use crate::dynamic::Adapt;
use crate::error::Result;
use crate::problem::Problems;
use crate::rooms::cluster::Client;
use crate::settings::Settings;
use crate::tasks::Tasks;

#[derive(Default)]
pub(crate) struct Parts {}

impl Parts {
    pub(crate) fn is_wanted(&self) -> bool {
        false
    }

    pub(crate) fn adapt(&self) -> Adapt {
        |_| ()
    }
}

pub(crate) fn check(_: &Settings, _: &Parts, _: bool, _: &mut Problems) {}

/// There is none.
#[derive(Clone, Debug)]
pub(crate) enum OwnApiServer {}

/// There are none.
pub(crate) type Connections = mpsc::Receiver<DuplexStream>;

pub(crate) struct OwnApiRoom;

impl OwnApiRoom {
    pub(crate) async fn open(_: &Settings, _: &Parts, _: (Clock, Disk), _: &mut Tasks) -> Result<Self> {
        Ok(Self)
    }

    pub(crate) fn is_open(&self) -> bool {
        false
    }

    pub(crate) fn client(&self) -> Option<Client> {
        None
    }

    pub(crate) fn server(&self) -> Option<OwnApiServer> {
        None
    }

    pub(crate) fn connections(&mut self) -> Option<Connections> {
        None
    }
}
