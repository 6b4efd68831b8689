//! What the resources of a container, e.g. devices and exclusive CPUs, add to its config (the rest of `GenerateRunContainerOptions`,
//! and `PreCreateContainer`).

use kubelet_core::{AddedDevice, AddedMount, ContainerAdditions};
use kubelet_cri::v1;

use super::environment::Environment;

/// Variables of the container itself win.
pub(super) fn add_environment(environment: &mut Environment, additions: &ContainerAdditions) {
    for (name, value) in &additions.envs {
        environment
            .entry(name.clone())
            .or_insert_with(|| value.clone().into_bytes());
    }
}

/// All but the environment. What is added stands before what the container has itself; annotations of the kubelet win.
pub(super) fn add_to_config(config: &mut v1::ContainerConfig, additions: &ContainerAdditions) {
    let own = std::mem::take(&mut config.mounts);
    config.mounts = additions.mounts.iter().map(mount).chain(own).collect();
    let own = std::mem::take(&mut config.devices);
    config.devices = additions.devices.iter().map(device).chain(own).collect();
    for (name, value) in &additions.annotations {
        let annotations = &mut config.annotations;
        annotations.entry(name.clone()).or_insert_with(|| value.clone());
    }
    let cdi_devices = additions.cdi_devices.iter().cloned();
    config.cdi_devices = cdi_devices.map(|name| v1::CdiDevice { name }).collect();
    let resources = config.linux.as_mut().and_then(|linux| linux.resources.as_mut());
    if let Some(resources) = resources {
        resources.cpuset_cpus.clone_from(&additions.cpus);
        resources.cpuset_mems.clone_from(&additions.memory_nodes);
        // A period means that CPU time is limited (`cpuCFSQuota`).
        if additions.exclusive_cpus && resources.cpu_period != 0 {
            resources.cpu_quota = -1;
        }
    }
}

fn mount(added: &AddedMount) -> v1::Mount {
    v1::Mount {
        container_path: added.container_path.clone(),
        host_path: added.host_path.clone(),
        readonly: added.read_only,
        ..Default::default()
    }
}

fn device(added: &AddedDevice) -> v1::Device {
    v1::Device {
        container_path: added.container_path.clone(),
        host_path: added.host_path.clone(),
        permissions: added.permissions.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_stands_first_and_what_the_container_has_wins() {
        let text = |text: &str| text.to_owned();
        let mut environment: Environment = [(text("BOTH"), b"own".to_vec())].into();
        let mut config = v1::ContainerConfig {
            mounts: vec![v1::Mount {
                container_path: text("/own"),
                ..Default::default()
            }],
            devices: vec![v1::Device {
                container_path: text("/dev/own"),
                ..Default::default()
            }],
            annotations: [(text("both"), text("own"))].into(),
            linux: Some(v1::LinuxContainerConfig {
                resources: Some(v1::LinuxContainerResources {
                    cpu_period: 100_000,
                    cpu_quota: 200_000,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let mut additions = ContainerAdditions::default();
        additions.envs = vec![(text("BOTH"), text("added")), (text("NEW"), text("added"))];
        additions.mounts = vec![AddedMount {
            container_path: text("/added"),
            host_path: text("/host"),
            read_only: true,
        }];
        additions.devices = vec![AddedDevice {
            container_path: text("/dev/added"),
            host_path: text("/dev/host"),
            permissions: text("rw"),
        }];
        additions.annotations = [(text("both"), text("added")), (text("new"), text("added"))].into();
        additions.cdi_devices = vec![text("vendor.com/gpu=0")];
        (additions.cpus, additions.memory_nodes) = (text("2-3"), text("0"));

        add_environment(&mut environment, &additions);
        add_to_config(&mut config, &additions);
        assert_eq!(
            environment,
            [(text("BOTH"), b"own".to_vec()), (text("NEW"), b"added".to_vec())].into()
        );
        let paths: Vec<&str> = config
            .mounts
            .iter()
            .map(|mount| mount.container_path.as_str())
            .collect();
        assert_eq!(paths, ["/added", "/own"]);
        assert!(config.mounts[0].readonly);
        let paths: Vec<&str> = config
            .devices
            .iter()
            .map(|device| device.container_path.as_str())
            .collect();
        assert_eq!(paths, ["/dev/added", "/dev/own"]);
        assert_eq!(
            (
                config.annotations["both"].as_str(),
                config.annotations["new"].as_str()
            ),
            ("own", "added")
        );
        assert_eq!(config.cdi_devices[0].name, "vendor.com/gpu=0");
        let resources = |config: &v1::ContainerConfig| config.linux.clone().unwrap().resources.unwrap();
        let with = resources(&config);
        assert_eq!(
            (with.cpuset_cpus.as_str(), with.cpuset_mems.as_str()),
            ("2-3", "0")
        );
        assert_eq!(with.cpu_quota, 200_000);
        additions.exclusive_cpus = true;
        add_to_config(&mut config, &additions);
        assert_eq!(resources(&config).cpu_quota, -1);
    }
}
