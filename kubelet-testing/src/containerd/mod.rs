//! A real containerd for one test.

mod cleanup;
mod command;
mod config;
mod image;
mod slot;
mod tar;
mod tools;

use std::fs::{File, create_dir};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use kubelet_cri::v1::{ImageSpec, ImageStatusRequest, StatusRequest};
use kubelet_cri::{CriClient, ImageService, RuntimeService};
use rustix::mount::{MountFlags, mount};
use tokio::time::{sleep, timeout};

use self::command::output;
use self::config::Layout;
use self::slot::Slot;
use self::tools::Tools;
use crate::{Error, Result, cgroups};

/// How long to wait until containerd is ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How often to check whether it is ready.
const POLL_PERIOD: Duration = Duration::from_millis(10);
/// The cgroups above those of pods: containerd's own, for pods that name none, and the one of the conformance kit.
const CGROUPS: [&str; 2] = ["k8s.io", "kubelet-testing"];
/// How many lines of containerd's log an error shows.
const LOG_LINES: usize = 40;

/// A real containerd for one test: its own root, state, socket, network and images, in a temporary folder in memory.
///
/// Many can run at the same time, in one process and in several. Each starts with:
///
/// * the image [`Containerd::BUSYBOX`] and an image for sandboxes, both made from the host's static busybox. There is
///   no registry, so the pull of any other image fails at once.
/// * a bridge network for pods, which the host can reach. Host ports need
///   [`start_with_host_ports`](Containerd::start_with_host_ports).
///
/// Drop removes everything, also after a panic: containerd, its shims and containers, mounts, network namespaces, the
/// bridge, the folder. If a test process was killed, the next fixture on the host removes what it left. Two things
/// stay because others may need them: IP forwarding, which the bridge plugin turns on, and the empty cgroups above
/// those of pods. The fixture makes these with the highest CPU weight, so that containers start also beside busy
/// processes. When a panic drops the fixture, it prints the end of containerd's log.
///
/// It runs in real time: do not use it under `tokio::time::pause`.
///
/// ```no_run
/// use kubelet_testing::Containerd;
///
/// # async fn test() -> kubelet_testing::Result<()> {
/// // Without root or containerd this prints SKIPPED and returns `None`. In CI (`CI=true`) it fails.
/// let Some(mut containerd) = Containerd::start().await? else { return Ok(()) };
/// let endpoint = containerd.endpoint(); // unix:///tmp/…/containerd.sock
///
/// containerd.kill(); // SIGKILL; containers continue to run
/// containerd.restart().await?; // and containerd finds them again
/// # Ok(())
/// # }
/// ```
pub struct Containerd {
    tools: Tools,
    layout: Layout,
    child: Option<Child>,
    // Last: the slot becomes free when everything else is cleaned up.
    slot: Slot,
}

impl Containerd {
    /// An image that every fixture has: busybox with all its applets.
    pub const BUSYBOX: &'static str = image::BUSYBOX;

    /// Starts a containerd and waits until it can run pods.
    ///
    /// Returns `None` if the host lacks something: root, containerd, runc, CNI plugins, a static busybox. It then
    /// writes a line to standard error that starts with `SKIPPED`. The test harness does not capture it.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] in place of `None` if the environment has `CI=true`; [`Error::Containerd`] if it does not
    /// become ready.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes everything made so far.
    pub async fn start() -> Result<Option<Self>> {
        Self::start_with(Tools::find(), false).await
    }

    /// Starts a containerd that serves the host ports of pods. This also needs iptables. Stop its pods before you
    /// drop it, otherwise the rules for their ports stay. The chain `CNI-HOSTPORT-DNAT` always stays.
    ///
    /// `None`, errors and cancel safety are those of [`start`](Self::start).
    pub async fn start_with_host_ports() -> Result<Option<Self>> {
        Self::start_with(Tools::find_with_iptables(), true).await
    }

    /// Starts a containerd 2, on hosts with an older version. It has `GetContainerEvents`, `RuntimeConfig`, image
    /// volumes, `supplementalGroupsPolicy` and, with runc 1.2 or newer, user namespaces.
    ///
    /// Its programs (`containerd`, `containerd-shim-runc-v2`, `ctr`) are in the folder that the variable
    /// `KUBELET_TESTING_CONTAINERD_2` names, or in `~/.cache/kubelet-testing/containerd-2/usr/bin`. Unpack a
    /// distribution's package there (`dpkg -x`); do not install it. It uses the `runc` of that folder, if there is one.
    /// Everything else is the host's.
    ///
    /// `None`, errors and cancel safety are those of [`start`](Self::start).
    pub async fn start_2() -> Result<Option<Self>> {
        Self::start_with(Tools::find_2(), false).await
    }

    async fn start_with(tools: Result<Tools, String>, host_ports: bool) -> Result<Option<Self>> {
        let tools = match tools {
            Ok(tools) => tools,
            Err(missing) if tools::in_ci() => {
                return Err(Error::Missing {
                    what: "containerd",
                    needs: missing,
                });
            }
            Err(missing) => {
                let thread = std::thread::current();
                let test = thread.name().unwrap_or_default();
                // Not `eprintln!`: the test harness would capture it.
                let _ = writeln!(io::stderr(), "SKIPPED: {test}: a real containerd needs {missing}");
                return Ok(None);
            }
        };
        for slot in Slot::abandoned() {
            cleanup::remove_all(
                &Layout {
                    folder: slot.folder(),
                },
                &slot.network(),
                &tools,
            );
        }
        for cgroup in CGROUPS {
            cgroups::make_with_highest_weight(cgroup);
        }
        let slot = Slot::claim()?;
        let layout = Layout {
            folder: slot.folder(),
        };
        let mut containerd = Self {
            tools,
            layout,
            child: None,
            slot,
        };
        let folder = &containerd.layout.folder;
        create_dir(folder)
            .and_then(|()| Ok(mount_memory(folder)?))
            .map_err(|source| Error::io(folder, source))?;
        containerd
            .layout
            .write(&containerd.slot, &containerd.tools, host_ports)?;
        containerd.spawn()?;
        containerd.wait_ready().await?;
        let archive = image::write_archive(&containerd.layout.folder, &containerd.tools.busybox).await?;
        containerd
            .ctr(["images", "import", &archive.to_string_lossy()])
            .await?;
        containerd.wait_for_images().await?;
        Ok(Some(containerd))
    }

    /// The endpoint, in the form of a kubelet's `containerRuntimeEndpoint`: `unix:///…`.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.layout.socket().display())
    }

    /// The folder of all its files.
    pub fn folder(&self) -> &Path {
        &self.layout.folder
    }

    /// Kills containerd (SIGKILL) and returns when it is dead. Shims and containers continue to run.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts containerd again with the same state and socket, and waits until it is ready. If it still runs, this
    /// kills it first.
    ///
    /// # Errors
    ///
    /// [`Error::Containerd`] if it does not become ready.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill();
        self.spawn()?;
        self.wait_ready().await?;
        self.wait_for_images().await
    }

    /// The ids of all containers that containerd has, including those of sandboxes.
    pub async fn containers(&self) -> Result<Vec<String>> {
        let list = self.ctr(["containers", "list", "--quiet"]).await?;
        Ok(list.lines().map(str::to_owned).collect())
    }

    /// The processes of containers that were started and not deleted, including those of sandboxes.
    pub async fn tasks(&self) -> Result<Vec<Task>> {
        let list = self.ctr(["tasks", "list"]).await?;
        let task = |line: &str| {
            let mut words = line.split_whitespace().map(str::to_owned);
            Some(Task {
                id: words.next()?,
                pid: words.next()?.parse().ok()?,
                status: words.next()?,
            })
        };
        // The first line is the header.
        Ok(list.lines().skip(1).filter_map(task).collect())
    }

    /// Runs `ctr` on this containerd, in CRI's namespace, and returns its output.
    ///
    /// # Errors
    ///
    /// [`Error::Command`] with the error output.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future kills `ctr`.
    pub async fn ctr<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<String> {
        let mut ctr = tokio::process::Command::new(&self.tools.ctr);
        ctr.arg("--address")
            .arg(self.layout.socket())
            .args(["--namespace", "k8s.io"])
            .args(arguments);
        output(&mut ctr).await
    }

    /// The last lines of its log.
    pub fn log(&self) -> String {
        let log = std::fs::read(self.layout.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    fn spawn(&mut self) -> Result<()> {
        let log = self.layout.log();
        let file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(|source| Error::io(&log, source))?;
        let child = std::process::Command::new(&self.tools.containerd)
            .arg("--config")
            .arg(self.layout.config())
            // containerd must not see our proxy settings or service manager.
            .env_clear()
            .env("PATH", self.tools.search_path())
            .env("TMPDIR", self.layout.temp())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .map_err(|source| Error::io(&self.tools.containerd, source))?;
        self.child = Some(child);
        Ok(())
    }

    async fn wait_ready(&mut self) -> Result<()> {
        self.wait_until("be ready", is_ready).await
    }

    /// After an import, an event makes the images known to CRI.
    async fn wait_for_images(&mut self) -> Result<()> {
        self.wait_until("know its images", knows_images).await
    }

    async fn wait_until<F>(&mut self, what: &str, reached: impl Fn(CriClient) -> F) -> Result<()>
    where
        F: Future<Output = Result<bool, kubelet_cri::Error>>,
    {
        let client = CriClient::builder(self.endpoint())
            .backoff(POLL_PERIOD, POLL_PERIOD)
            .connect_lazy()
            .map_err(|error| self.error(error.to_string()))?;
        let polling = async {
            loop {
                match reached(client.clone()).await {
                    Ok(true) => return Ok(()),
                    // It runs without CRI.
                    Err(error) if error.is_unimplemented() => return Err(error.to_string()),
                    Ok(false) | Err(_) => {}
                }
                if let Some(Ok(Some(status))) = self.child.as_mut().map(Child::try_wait) {
                    return Err(format!("ended with {status}"));
                }
                sleep(POLL_PERIOD).await;
            }
        };
        match timeout(READY_WITHIN, polling).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(message)) => Err(self.error(message)),
            Err(_) => Err(self.error(format!("did not {what} within {READY_WITHIN:?}"))),
        }
    }

    fn error(&self, message: String) -> Error {
        Error::Containerd {
            message: format!("{message}; the end of its log:\n{}", self.log()),
        }
    }
}

/// Mounts a file system in memory. A containerd writes and removes many small files for each container. On a disk, that takes a fifth of the
/// CPU time of the tests.
fn mount_memory(folder: &Path) -> rustix::io::Result<()> {
    // The first process of a pod with a user namespace of its own is not root, and gets to its files here.
    mount("tmpfs", folder, "tmpfs", MountFlags::NOATIME, c"mode=0711")
}

/// Whether CRI says that runtime and network are ready.
async fn is_ready(client: CriClient) -> Result<bool, kubelet_cri::Error> {
    let status = client
        .status(StatusRequest::default())
        .await?
        .status
        .unwrap_or_default();
    Ok(status.conditions.iter().all(|condition| condition.status))
}

async fn knows_images(client: CriClient) -> Result<bool, kubelet_cri::Error> {
    for image in [image::BUSYBOX, image::PAUSE] {
        let image = Some(ImageSpec {
            image: image.to_owned(),
            ..ImageSpec::default()
        });
        if client
            .image_status(ImageStatusRequest {
                image,
                verbose: false,
            })
            .await?
            .image
            .is_none()
        {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "shown by the test harness with the panic")]
            {
                eprintln!("the end of containerd's log:\n{}", self.log());
            }
        }
        self.kill();
        cleanup::remove_all(&self.layout, &self.slot.network(), &self.tools);
    }
}

kubelet_core::impl_debug!(Containerd: endpoint());

/// The process of a container, as `ctr tasks list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Task {
    /// The container's id.
    pub id: String,
    /// Its first process, as the host numbers it.
    pub pid: u32,
    /// `RUNNING`, `STOPPED`, …
    pub status: String,
}
