//! Compiles modules and components, and runs them.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use wasmtime::component::{Component, Linker as ComponentLinker};
use wasmtime::{
    Cache, CacheConfig, Config, Engine, InstancePre, Linker, Module, Result, Store, UpdateDeadline,
};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::p2::bindings::CommandPre;
use wasmtime_wasi::{I32Exit, WasiCtxView, WasiView};

use crate::memory::Memory;

/// How long a busy module runs until it gives way to others.
const EPOCH: Duration = Duration::from_millis(10);
/// What `abort` gives a process.
const TRAPPED: i32 = 128 + 6;

/// Compiles for all containers. The code of an image is in memory once, and in a cache on disk.
pub(crate) struct Compiler {
    engine: Engine,
    modules: Linker<State>,
    components: ComponentLinker<State>,
    _epochs: Epochs,
}

/// The compiled code of an image.
#[derive(Clone)]
pub(crate) enum Program {
    /// A module of WASI preview 1.
    Module(InstancePre<State>),
    /// A component of WASI preview 2 with the world `wasi:cli/command`.
    Component(CommandPre<State>),
}

/// What a running module may use.
pub(crate) struct State {
    pub(crate) wasi: WasiP1Ctx,
    pub(crate) memory: Memory,
}

/// How a module ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    /// Why, if it was a trap.
    pub(crate) message: String,
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.wasi.ctx()
    }
}

impl Compiler {
    /// A compiler with its cache in this folder, an absolute path.
    pub(crate) fn new(cache: &Path) -> Result<Self> {
        let mut config = Config::new();
        config.epoch_interruption(true);
        config.cache(Some(Cache::new(CacheConfig::new().with_directory(cache).to_owned())?));
        let engine = Engine::new(&config)?;
        let mut modules = Linker::new(&engine);
        wasmtime_wasi::p1::add_to_linker_async(&mut modules, |state: &mut State| &mut state.wasi)?;
        // Wasmtime's own takes exit codes below 126 only. A container may end with any.
        modules.allow_shadowing(true);
        modules.func_wrap("wasi_snapshot_preview1", "proc_exit", exit)?;
        let mut components = ComponentLinker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut components)?;
        let _epochs = Epochs::start(engine.clone())?;
        Ok(Self { engine, modules, components, _epochs })
    }

    /// Compiles a module or a component. Blocks while it does.
    pub(crate) fn compile(&self, wasm: &[u8]) -> Result<Program> {
        // The second half of the version tells them apart.
        if wasm.get(6) == Some(&1) {
            let component = Component::new(&self.engine, wasm)?;
            return Ok(Program::Component(CommandPre::new(self.components.instantiate_pre(&component)?)?));
        }
        let module = Module::new(&self.engine, wasm)?;
        Ok(Program::Module(self.modules.instantiate_pre(&module)?))
    }

    /// Runs a program to its end. It gives way at each epoch, so dropping the future ends even a busy one.
    pub(crate) async fn run(&self, program: Program, state: State) -> Ended {
        let mut store = Store::new(&self.engine, state);
        store.limiter(|state| &mut state.memory);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Yield(1)));
        match run(program, &mut store).await {
            Ok(code) => Ended { code, message: String::new() },
            Err(error) => match error.downcast_ref::<I32Exit>() {
                Some(I32Exit(code)) => Ended { code: *code, message: String::new() },
                None => Ended { code: TRAPPED, message: format!("{error:?}") },
            },
        }
    }
}

fn exit(code: i32) -> Result<()> {
    Err(I32Exit(code & 0xff).into())
}

async fn run(program: Program, store: &mut Store<State>) -> Result<i32> {
    match program {
        Program::Module(module) => {
            let instance = module.instantiate_async(&mut *store).await?;
            let start = instance.get_typed_func::<(), ()>(&mut *store, "_start")?;
            start.call_async(store, ()).await?;
            Ok(0)
        }
        Program::Component(component) => {
            let command = component.instantiate_async(&mut *store).await?;
            let ended = command.wasi_cli_run().call_run(store).await?;
            Ok(i32::from(ended.is_err()))
        }
    }
}

/// Counts the epochs on a thread of its own: modules may keep all others busy. It ends when this is dropped.
struct Epochs {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Epochs {
    fn start(engine: Engine) -> std::io::Result<Self> {
        let (end, ended) = channel::<()>();
        let count = move || {
            while ended.recv_timeout(EPOCH) == Err(RecvTimeoutError::Timeout) {
                engine.increment_epoch();
            }
        };
        let thread = std::thread::Builder::new().name("wasm-epochs".to_owned()).spawn(count)?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Epochs {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
