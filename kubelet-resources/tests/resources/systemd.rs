//! The cgroup driver systemd, against a fake service manager on a bus of the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use kubelet_core::cgroups::{CgroupDriver, CgroupLimits, PodCgroupSettings};
use kubelet_core::{PodContainerManager, PodUid};
use kubelet_resources::cgroups::{CgroupMounts, MemoryQos, PodCgroups, PodCgroupsBuilder};
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use zbus::object_server::SignalEmitter;
use zbus::{ObjectPath, OwnedObjectPath, OwnedVariant};

use crate::cgroups::{kernels_files, pod_with, read};

const OBJECT: &str = "/org/freedesktop/systemd1";

type Properties = Vec<(String, OwnedVariant)>;

/// What the fake does, and what it was asked for.
#[derive(Default)]
struct Behaviour {
    calls: Vec<String>,
    /// The units that run.
    exist: Vec<String>,
    /// The result of the next job, if it is not `done`.
    next_result: Option<String>,
}

struct Systemd(Arc<Mutex<Behaviour>>);

#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.freedesktop.systemd1")]
enum Refused {
    #[zbus(error)]
    Bus(zbus::Error),
    UnitExists(String),
    NoSuchUnit(String),
}

impl Systemd {
    /// The job ends before the call returns.
    async fn job(&self, unit: &str, emitter: &SignalEmitter<'_>) -> Result<OwnedObjectPath, Refused> {
        let job = ObjectPath::try_from(format!("{OBJECT}/job/7"))?;
        let result = self.0.lock().next_result.take();
        let result = result.unwrap_or_else(|| "done".to_owned());
        let other = ObjectPath::try_from(format!("{OBJECT}/job/6"))?;
        Self::job_removed(emitter, 6, other, "other.slice", "canceled").await?;
        Self::job_removed(emitter, 7, job.clone(), unit, &result).await?;
        Ok(job.into())
    }

    fn note(&self, call: String) {
        self.0.lock().calls.push(call);
    }
}

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl Systemd {
    #[zbus(property, name = "Version")]
    fn version(&self) -> String {
        "252.39-1~deb12u1".to_owned()
    }

    async fn start_transient_unit(
        &self,
        name: String,
        mode: String,
        properties: Properties,
        aux: Vec<(String, Properties)>,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Result<OwnedObjectPath, Refused> {
        assert!(aux.is_empty());
        self.note(format!("start {name} {mode}: {}", shown(&properties)));
        if self.0.lock().exist.contains(&name) {
            return Err(Refused::UnitExists(format!("Unit {name} already exists.")));
        }
        let started = self.job(&name, &emitter).await?;
        self.0.lock().exist.push(name);
        Ok(started)
    }

    fn set_unit_properties(&self, name: String, runtime: bool, properties: Properties) {
        self.note(format!("set {name} {runtime}: {}", shown(&properties)));
    }

    async fn stop_unit(
        &self,
        name: String,
        mode: String,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Result<OwnedObjectPath, Refused> {
        self.note(format!("stop {name} {mode}"));
        let was = self.0.lock().exist.len();
        self.0.lock().exist.retain(|exists| *exists != name);
        if self.0.lock().exist.len() == was {
            return Err(Refused::NoSuchUnit(format!("Unit {name} not loaded.")));
        }
        self.job(&name, &emitter).await
    }

    fn reset_failed_unit(&self, name: String) -> Result<(), Refused> {
        self.note(format!("reset {name}"));
        Err(Refused::NoSuchUnit(format!("Unit {name} not loaded.")))
    }

    #[zbus(signal)]
    async fn job_removed(
        emitter: &SignalEmitter<'_>,
        id: u32,
        job: ObjectPath<'_>,
        unit: &str,
        result: &str,
    ) -> zbus::Result<()>;
}

fn shown(properties: &Properties) -> String {
    let value = |value: &OwnedVariant| {
        let number = u64::try_from(value.clone()).map(|number| match number {
            u64::MAX => "infinity".to_owned(),
            number => number.to_string(),
        });
        let flag = bool::try_from(value.clone()).map(|flag| flag.to_string());
        let text = String::try_from(value.clone());
        let texts = Vec::<String>::try_from(value.clone()).map(|texts| texts.join("+"));
        let bytes = Vec::<u8>::try_from(value.clone()).map(|bytes| format!("{bytes:?}"));
        number.or(flag).or(text).or(texts).or(bytes).unwrap()
    };
    let properties = properties.iter();
    let properties: Vec<String> = properties
        .map(|(name, it)| format!("{name}={}", value(it)))
        .collect();
    properties.join(" ")
}

/// A bus with the fake on it, and a hierarchy of version 2, which is a plain folder.
struct Host {
    folder: TempDir,
    bus: PathBuf,
    daemon: Child,
    _connection: zbus::Connection,
    behaviour: Arc<Mutex<Behaviour>>,
}

/// `None` without `dbus-daemon`.
async fn bus(at: &Path) -> Option<Child> {
    let address = format!("unix:path={}", at.display());
    let daemon = Command::new("dbus-daemon")
        .args(["--session", "--nofork", "--print-address", "--address", &address])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let Ok(mut daemon) = daemon else {
        assert!(std::env::var_os("CI").is_none(), "there is no dbus-daemon");
        println!("SKIPPED: there is no dbus-daemon");
        return None;
    };
    let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
    lines.next_line().await.unwrap().unwrap();
    Some(daemon)
}

async fn serve(at: &Path, behaviour: Arc<Mutex<Behaviour>>) -> zbus::Connection {
    let address = format!("unix:path={}", at.display());
    zbus::connection::Builder::address(address.as_str())
        .serve_at(OBJECT, Systemd(behaviour))
        .name("org.freedesktop.systemd1")
        .build()
        .await
        .unwrap()
}

impl Host {
    async fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("bus");
        let daemon = bus(&at).await?;
        let behaviour = Arc::<Mutex<Behaviour>>::default();
        let connection = serve(&at, behaviour.clone()).await;
        Some(Self {
            folder,
            bus: at,
            daemon,
            _connection: connection,
            behaviour,
        })
    }

    fn mount(&self) -> PathBuf {
        self.folder.path().join("cgroup")
    }

    /// A cgroup with the files of the kernel.
    fn cgroup(&self, path: &str) -> PathBuf {
        const FILES: [&str; 8] = [
            "cgroup.subtree_control",
            "cpu.max",
            "cpu.weight",
            "cpuset.cpus",
            "memory.low",
            "memory.max",
            "memory.min",
            "pids.max",
        ];
        let dir = self.mount().join(path);
        kernels_files(&dir, &FILES);
        fs::write(dir.join("cgroup.controllers"), "cpu memory pids").unwrap();
        dir
    }

    fn cgroups(&self) -> PodCgroupsBuilder {
        let mut settings = PodCgroupSettings::default();
        settings.driver = CgroupDriver::configured(true, "systemd", "/");
        settings.pod_pids_limit = Some(100);
        PodCgroups::builder(settings)
            .mounts(CgroupMounts::v2(self.mount()))
            .bus(format!("unix:path={}", self.bus.display()))
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.behaviour.lock().calls)
    }
}

const ACCOUNTING: &str = "MemoryAccounting=true CPUAccounting=true IOAccounting=true TasksAccounting=true DefaultDependencies=false";

fn start(unit: &str, wants: &str) -> String {
    format!("start {unit} replace: Description=libcontainer container {unit} Wants={wants} {ACCOUNTING}")
}

#[tokio::test]
async fn pods_have_slices() {
    let Some(host) = Host::new().await else { return };
    host.cgroup("");
    let cgroups = host.cgroups().build().await.unwrap();
    let (burstable, best_effort) = ("kubepods-burstable.slice", "kubepods-besteffort.slice");
    let expected = [
        start("kubepods.slice", "-.slice"),
        "set kubepods.slice true: ".to_owned(),
        start(burstable, "kubepods.slice"),
        format!("set {burstable} true: "),
        start(best_effort, "kubepods.slice"),
        format!("set {best_effort} true: CPUWeight=1"),
    ];
    assert_eq!(host.calls(), expected);

    // A pod, whose quota is rounded to whole percents of a CPU.
    let unit = "kubepods-burstable-poda_1.slice";
    let path = format!("kubepods.slice/{burstable}/{unit}");
    let dir = host.cgroup(&path);
    fs::remove_file(dir.join("cgroup.controllers")).unwrap();
    let pod = pod_with(
        "a-1",
        json!({ "cpu": "100m" }),
        json!({ "cpu": "333m", "memory": "64Mi" }),
    );
    assert!(!cgroups.exists(&pod).await);
    cgroups.ensure_exists(&pod).await.unwrap();
    let limits =
        "MemoryMax=67108864 CPUWeight=4 CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=340000 TasksMax=100";
    let expected = [
        "set kubepods.slice true: ".to_owned(),
        format!("set {burstable} true: CPUWeight=4"),
        format!("set {best_effort} true: CPUWeight=1"),
        start(unit, burstable),
        format!("set {unit} true: {limits}"),
    ];
    assert_eq!(host.calls(), expected);
    let written = ["memory.max", "cpu.weight", "cpu.max", "pids.max"].map(|file| read(&dir, file));
    assert_eq!(written, ["67108864", "4", "34000 100000", "100"]);
    assert_eq!(cgroups.pods().await.unwrap(), [PodUid::from("a-1")]);

    // A resize, and the end of the pod.
    let mut more = CgroupLimits::default();
    more.memory = Some(1 << 30);
    cgroups.set_limits(&pod, more).await.unwrap();
    cgroups.reduce_cpu_limits(&"a-1".into()).await.unwrap();
    let expected = [
        format!("set {unit} true: MemoryMax=1073741824"),
        format!("set {unit} true: CPUWeight=1"),
    ];
    assert_eq!(host.calls(), expected);
    // The kernel removes the files of a cgroup with it; here the test must.
    let files = fs::read_dir(&dir).unwrap();
    files.for_each(|file| fs::remove_file(file.unwrap().path()).unwrap());
    cgroups.destroy(&"a-1".into()).await.unwrap();
    assert!(!dir.exists());
    let calls = host.calls();
    assert_eq!(
        calls[..2],
        [format!("stop {unit} replace"), format!("reset {unit}")]
    );
    assert!(cgroups.pods().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_slice_that_runs_is_used_and_one_that_fails_is_reported() {
    let Some(host) = Host::new().await else { return };
    host.cgroup("");
    host.behaviour.lock().exist.push("kubepods.slice".to_owned());
    let protects = || host.cgroups().memory_qos(MemoryQos::TieredReservation);
    let cgroups = protects().build().await.unwrap();
    host.calls();

    let pod = pod_with(
        "g",
        json!({ "cpu": "1", "memory": "1Mi" }),
        json!({ "cpu": "1", "memory": "1Mi" }),
    );
    let unit = "kubepods-podg.slice";
    let dir = host.cgroup(&format!("kubepods.slice/{unit}"));
    fs::remove_file(dir.join("cgroup.controllers")).unwrap();
    host.behaviour.lock().next_result = Some("failed".to_owned());
    let error = cgroups.ensure_exists(&pod).await.unwrap_err().to_string();
    let problem = format!("error creating systemd unit `{unit}`: got `failed`");
    assert!(error.ends_with(&problem), "{error}");
    assert_eq!(host.calls().last().unwrap(), &format!("reset {unit}"));

    // The memory of guaranteed pods is protected, and in the slice above.
    host.behaviour.lock().exist.retain(|exists| exists != unit);
    cgroups.ensure_exists(&pod).await.unwrap();
    let calls = host.calls();
    let of_all = "set kubepods.slice true: MemoryMin=1048576";
    assert!(calls.iter().any(|call| call == of_all), "{calls:?}");
    assert!(
        calls.last().unwrap().ends_with("TasksMax=100 MemoryMin=1048576"),
        "{calls:?}"
    );
    assert_eq!(read(&dir, "memory.min"), "1048576");

    // A unit that systemd does not know is gone.
    host.behaviour.lock().exist.clear();
    let files = fs::read_dir(&dir).unwrap();
    files.for_each(|file| fs::remove_file(file.unwrap().path()).unwrap());
    cgroups.destroy(&"g".into()).await.unwrap();
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_bus_that_was_restarted_is_used_again() {
    let Some(mut host) = Host::new().await else { return };
    host.cgroup("");
    let cgroups = host.cgroups().build().await.unwrap();
    host.calls();
    host.daemon.kill().await.unwrap();
    let _ = fs::remove_file(&host.bus);
    let error = cgroups.ensure_exists(&pod_with("a", json!({}), json!({}))).await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("unable to start unit \"kubepods-besteffort-poda.slice\""),
        "{error}"
    );

    host.daemon = bus(&host.bus).await.unwrap();
    let _served = serve(&host.bus, host.behaviour.clone()).await;
    cgroups
        .ensure_exists(&pod_with("a", json!({}), json!({})))
        .await
        .unwrap();
    let started = start("kubepods-besteffort-poda.slice", "kubepods-besteffort.slice");
    let calls = host.calls();
    assert!(calls.contains(&started), "{calls:?}");
}

#[tokio::test]
async fn without_systemd_pods_have_no_cgroups() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = PodCgroupSettings::default();
    settings.driver = CgroupDriver::configured(true, "systemd", "/");
    let cgroups = PodCgroups::builder(settings)
        .mounts(CgroupMounts::v2(folder.path()))
        .bus(format!("unix:path={}", folder.path().join("none").display()));
    let error = cgroups.build().await.unwrap_err().to_string();
    let problem = "failed to create the cgroup [\"kubepods\"]: unable to start unit \"kubepods.slice\": ";
    assert!(error.starts_with(problem), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
