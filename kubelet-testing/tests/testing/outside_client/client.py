"""Takes a pod through its life on the CRI at sys.argv[1]; logs are below sys.argv[2]. Fails loudly."""

import queue
import sys
import threading

import grpc

import api_pb2 as cri

ENDPOINT, FOLDER = sys.argv[1:]
IMAGE = "docker.io/library/busybox:1.36"
# A call that takes longer than this has failed.
DEADLINE = 30

# The C core of gRPC would send the path of the socket as the authority, which HTTP/2 does not allow.
channel = grpc.insecure_channel(ENDPOINT, options=[("grpc.default_authority", "localhost")])
services = cri.DESCRIPTOR.services_by_name
methods = {
    method.name: (service, method)
    for service in (services["RuntimeService"], services["ImageService"])
    for method in service.methods
}


def call(name, streams=False, deadline=DEADLINE, **fields):
    service, method = methods[name]
    request = getattr(cri, method.input_type.name)
    response = getattr(cri, method.output_type.name)
    make = channel.unary_stream if streams else channel.unary_unary
    stub = make(
        f"/{service.full_name}/{name}",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )
    return stub(request(**fields), timeout=deadline)


def refused(code, words, name, **fields):
    try:
        answer = call(name, **fields)
    except grpc.RpcError as error:
        assert error.code() == code, (name, error.code(), error.details())
        assert words in error.details(), (name, error.details())
        return
    raise AssertionError(f"{name} was not refused: {answer}")


def equal(left, right):
    assert left == right, f"{left!r} is not {right!r}"


NOT_FOUND, UNKNOWN = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNKNOWN
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED

# Who is there?
version = call("Version", version="v1")
equal((version.runtime_name, version.runtime_api_version), ("memory", "v1"))
conditions = call("Status").status.conditions
equal([(c.type, c.status) for c in conditions], [("RuntimeReady", True), ("NetworkReady", True)])
equal(call("RuntimeConfig").linux.cgroup_driver, cri.CGROUPFS)

# Events, from before the first of them.
events = queue.Queue()
stream = call("GetContainerEvents", streams=True, deadline=None)
# The server has answered, so it is watched from here on.
stream.initial_metadata()


def watch():
    try:
        for event in stream:
            events.put(event)
    except grpc.RpcError as error:
        events.put(error)


threading.Thread(target=watch, daemon=True).start()


def sandbox_config(pod):
    return dict(
        metadata=dict(name=pod, uid=f"uid-of-{pod}", namespace="default"),
        hostname=pod,
        log_directory=f"{FOLDER}/pods/{pod}",
        labels={"app": pod},
    )


def container_config(name, attempt=0, image=IMAGE):
    return dict(
        metadata=dict(name=name, attempt=attempt),
        image=dict(image=image),
        command=["sleep", "infinity"],
        log_path=f"{name}/{attempt}.log",
        labels={"container": name},
    )


def until(kind, container_id):
    """The event of this kind about this container or sandbox; those before it are dropped."""
    while True:
        event = events.get(timeout=DEADLINE)
        if isinstance(event, Exception):
            raise event
        if (event.container_event_type, event.container_id) == (kind, container_id):
            return event


# A sandbox.
web = sandbox_config("web")
sandbox = call("RunPodSandbox", config=web).pod_sandbox_id
refused(PRECONDITION, "is reserved for", "RunPodSandbox", config=web)
refused(UNKNOWN, "must include metadata", "RunPodSandbox", config={})
status = call("PodSandboxStatus", pod_sandbox_id=sandbox[:12]).status
equal((status.id, status.state), (sandbox, cri.SANDBOX_READY))
assert status.network.ip.startswith("10.88."), status.network
refused(NOT_FOUND, "not found", "PodSandboxStatus", pod_sandbox_id="nope")
event = until(cri.CONTAINER_STARTED_EVENT, sandbox)
equal(event.pod_sandbox_status.network.ip, status.network.ip)

# An image.
assert not call("ImageStatus", image=dict(image=IMAGE)).HasField("image")
refused(NOT_FOUND, "gone:1: not found", "PullImage", image=dict(image="gone:1"))
image = call("PullImage", image=dict(image="busybox:1.36")).image_ref
equal(call("ImageStatus", image=dict(image=IMAGE)).image.id, image)
assert image in [i.id for i in call("ListImages").images]
assert call("ImageFsInfo").image_filesystems[0].used_bytes.value > 0

# A container.
refused(NOT_FOUND, "failed to find sandbox id", "CreateContainer", pod_sandbox_id="nope", config=container_config("main"))
refused(
    NOT_FOUND, "failed to resolve image", "CreateContainer",
    pod_sandbox_id=sandbox, config=container_config("main", image="other:1"), sandbox_config=web,
)
main = call("CreateContainer", pod_sandbox_id=sandbox, config=container_config("main"), sandbox_config=web).container_id
equal(call("ContainerStatus", container_id=main).status.state, cri.CONTAINER_CREATED)
refused(UNKNOWN, "CONTAINER_CREATED", "ExecSync", container_id=main, cmd=["true"])
call("StartContainer", container_id=main)
refused(UNKNOWN, "container is in CONTAINER_RUNNING state", "StartContainer", container_id=main)
refused(NOT_FOUND, "not found", "StartContainer", container_id="nope")
event = until(cri.CONTAINER_STARTED_EVENT, main)
equal([(c.id, c.state) for c in event.containers_statuses], [(main, cri.CONTAINER_RUNNING)])

answer = call("ExecSync", container_id=main, cmd=["cat", "/x"], timeout=5)
equal((answer.stdout, answer.stderr, answer.exit_code), (b"out\n", b"err\n", 7))
refused(UNIMPLEMENTED, "no streams", "Exec", container_id=main, cmd=["sh"], stdout=True)
with open(f"{FOLDER}/pods/web/main/0.log", encoding="utf-8") as log:
    equal(log.read().split(" ", 1)[1], "stdout F hello\n")
call("ReopenContainerLog", container_id=main)

# Lists and statistics.
running = dict(state=dict(state=cri.CONTAINER_RUNNING), label_selector={"container": "main"})
equal([c.id for c in call("ListContainers", filter=running).containers], [main])
equal(len(call("ListContainers", filter=dict(id="nope")).containers), 0)
equal([s.id for s in call("ListPodSandbox", filter=dict(label_selector={"app": "web"})).items], [sandbox])
equal([c.id for batch in call("StreamContainers", streams=True) for c in batch.containers], [main])
stats = call("ContainerStats", container_id=main).stats
equal((stats.attributes.metadata.name, stats.memory.working_set_bytes.value), ("main", 8 << 20))
assert stats.cpu.usage_core_nano_seconds.value > 0
equal(len(call("PodSandboxStats", pod_sandbox_id=sandbox).stats.linux.containers), 1)

# One that ends by itself.
crash = call("CreateContainer", pod_sandbox_id=sandbox, config=container_config("crash"), sandbox_config=web).container_id
call("StartContainer", container_id=crash)
event = until(cri.CONTAINER_STOPPED_EVENT, crash)
ended = [c for c in event.containers_statuses if c.id == crash][0]
equal((ended.state, ended.exit_code, ended.reason), (cri.CONTAINER_EXITED, 3, "Error"))
assert ended.finished_at > ended.started_at > 0

# The end.
for _ in range(2):
    call("StopContainer", container_id=main, timeout=10)
status = call("ContainerStatus", container_id=main).status
equal((status.state, status.exit_code, status.reason), (cri.CONTAINER_EXITED, 143, "Error"))
refused(UNKNOWN, "container is not running", "ReopenContainerLog", container_id=main)
for _ in range(2):
    call("RemoveContainer", container_id=main)
refused(NOT_FOUND, "not found", "ContainerStatus", container_id=main)
until(cri.CONTAINER_DELETED_EVENT, main)
for _ in range(2):
    call("StopPodSandbox", pod_sandbox_id=sandbox)
equal(call("PodSandboxStatus", pod_sandbox_id=sandbox).status.state, cri.SANDBOX_NOTREADY)
late = call("CreateContainer", pod_sandbox_id=sandbox, config=container_config("late"), sandbox_config=web).container_id
refused(UNKNOWN, "is not running", "StartContainer", container_id=late)
for _ in range(2):
    call("RemovePodSandbox", pod_sandbox_id=sandbox)
event = until(cri.CONTAINER_DELETED_EVENT, sandbox)
equal(event.pod_sandbox_status.state, cri.SANDBOX_NOTREADY)
for _ in range(2):
    call("RemoveImage", image=dict(image=IMAGE))
assert not call("ImageStatus", image=dict(image=IMAGE)).HasField("image")

# Whoever knows all methods has been told of none that is not there.
equal(len(methods), 41)
refused(UNIMPLEMENTED, "no processes", "CheckpointContainer", container_id="nope")
stream.cancel()
