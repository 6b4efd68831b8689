//! The numbers that Kubernetes gave to the fields of a pod in protobuf, by the names of JSON. A number never changes; new fields
//! get new ones.
//!
//! A few messages are objects of their own in protobuf, while JSON has their fields in the object around. Such a field has two
//! numbers: that of the message, and its own.

/// The fields of one type: the name, the number, and the number within an inner message or 0.
pub(super) type Fields = &'static [(&'static str, u8, u8)];

/// Sorted by type.
#[rustfmt::skip]
pub(super) static TYPES: &[(&str, Fields)] = &[
    ("AWSElasticBlockStoreVolumeSource", &[
        ("fsType", 2, 0), ("partition", 3, 0), ("readOnly", 4, 0), ("volumeID", 1, 0),
    ]),
    ("Affinity", &[
        ("nodeAffinity", 1, 0), ("podAffinity", 2, 0), ("podAntiAffinity", 3, 0),
    ]),
    ("AppArmorProfile", &[
        ("localhostProfile", 2, 0), ("type", 1, 0),
    ]),
    ("AzureDiskVolumeSource", &[
        ("cachingMode", 3, 0), ("diskName", 1, 0), ("diskURI", 2, 0), ("fsType", 4, 0), ("kind", 6, 0),
        ("readOnly", 5, 0),
    ]),
    ("AzureFileVolumeSource", &[
        ("readOnly", 3, 0), ("secretName", 1, 0), ("shareName", 2, 0),
    ]),
    ("CSIVolumeSource", &[
        ("driver", 1, 0), ("fsType", 3, 0), ("nodePublishSecretRef", 5, 0), ("readOnly", 2, 0),
        ("volumeAttributes", 4, 0),
    ]),
    ("Capabilities", &[
        ("add", 1, 0), ("drop", 2, 0),
    ]),
    ("CephFSVolumeSource", &[
        ("monitors", 1, 0), ("path", 2, 0), ("readOnly", 6, 0), ("secretFile", 4, 0), ("secretRef", 5, 0),
        ("user", 3, 0),
    ]),
    ("CinderVolumeSource", &[
        ("fsType", 2, 0), ("readOnly", 3, 0), ("secretRef", 4, 0), ("volumeID", 1, 0),
    ]),
    ("ClusterTrustBundleProjection", &[
        ("labelSelector", 3, 0), ("name", 1, 0), ("optional", 5, 0), ("path", 4, 0), ("signerName", 2, 0),
    ]),
    ("ConfigMapEnvSource", &[
        ("name", 1, 1), ("optional", 2, 0),
    ]),
    ("ConfigMapKeySelector", &[
        ("key", 2, 0), ("name", 1, 1), ("optional", 3, 0),
    ]),
    ("ConfigMapProjection", &[
        ("items", 2, 0), ("name", 1, 1), ("optional", 4, 0),
    ]),
    ("ConfigMapVolumeSource", &[
        ("defaultMode", 3, 0), ("items", 2, 0), ("name", 1, 1), ("optional", 4, 0),
    ]),
    ("Container", &[
        ("args", 4, 0), ("command", 3, 0), ("env", 7, 0), ("envFrom", 19, 0), ("image", 2, 0),
        ("imagePullPolicy", 14, 0), ("lifecycle", 12, 0), ("livenessProbe", 10, 0), ("name", 1, 0),
        ("ports", 6, 0), ("readinessProbe", 11, 0), ("resizePolicy", 23, 0), ("resources", 8, 0),
        ("restartPolicy", 24, 0), ("restartPolicyRules", 25, 0), ("securityContext", 15, 0),
        ("startupProbe", 22, 0), ("stdin", 16, 0), ("stdinOnce", 17, 0), ("terminationMessagePath", 13, 0),
        ("terminationMessagePolicy", 20, 0), ("tty", 18, 0), ("volumeDevices", 21, 0), ("volumeMounts", 9, 0),
        ("workingDir", 5, 0),
    ]),
    ("ContainerExtendedResourceRequest", &[
        ("containerName", 1, 0), ("requestName", 3, 0), ("resourceName", 2, 0),
    ]),
    ("ContainerPort", &[
        ("containerPort", 3, 0), ("hostIP", 5, 0), ("hostPort", 2, 0), ("name", 1, 0), ("protocol", 4, 0),
    ]),
    ("ContainerResizePolicy", &[
        ("resourceName", 1, 0), ("restartPolicy", 2, 0),
    ]),
    ("ContainerRestartRule", &[
        ("action", 1, 0), ("exitCodes", 2, 0),
    ]),
    ("ContainerRestartRuleOnExitCodes", &[
        ("operator", 1, 0), ("values", 2, 0),
    ]),
    ("ContainerState", &[
        ("running", 2, 0), ("terminated", 3, 0), ("waiting", 1, 0),
    ]),
    ("ContainerStateRunning", &[
        ("startedAt", 1, 0),
    ]),
    ("ContainerStateTerminated", &[
        ("containerID", 7, 0), ("exitCode", 1, 0), ("finishedAt", 6, 0), ("message", 4, 0), ("reason", 3, 0),
        ("signal", 2, 0), ("startedAt", 5, 0),
    ]),
    ("ContainerStateWaiting", &[
        ("message", 2, 0), ("reason", 1, 0),
    ]),
    ("ContainerStatus", &[
        ("allocatedResources", 10, 0), ("allocatedResourcesStatus", 14, 0), ("containerID", 8, 0),
        ("image", 6, 0), ("imageID", 7, 0), ("lastState", 3, 0), ("name", 1, 0), ("ready", 4, 0),
        ("resources", 11, 0), ("restartCount", 5, 0), ("started", 9, 0), ("state", 2, 0),
        ("stopSignal", 15, 0), ("user", 13, 0), ("volumeMounts", 12, 0),
    ]),
    ("ContainerUser", &[
        ("linux", 1, 0),
    ]),
    ("DownwardAPIProjection", &[
        ("items", 1, 0),
    ]),
    ("DownwardAPIVolumeFile", &[
        ("fieldRef", 2, 0), ("mode", 4, 0), ("path", 1, 0), ("resourceFieldRef", 3, 0),
    ]),
    ("DownwardAPIVolumeSource", &[
        ("defaultMode", 2, 0), ("items", 1, 0),
    ]),
    ("EmptyDirVolumeSource", &[
        ("medium", 1, 0), ("sizeLimit", 2, 0),
    ]),
    ("EnvFromSource", &[
        ("configMapRef", 2, 0), ("prefix", 1, 0), ("secretRef", 3, 0),
    ]),
    ("EnvVar", &[
        ("name", 1, 0), ("value", 2, 0), ("valueFrom", 3, 0),
    ]),
    ("EnvVarSource", &[
        ("configMapKeyRef", 3, 0), ("fieldRef", 1, 0), ("fileKeyRef", 5, 0), ("resourceFieldRef", 2, 0),
        ("secretKeyRef", 4, 0),
    ]),
    ("EphemeralContainer", &[
        ("args", 1, 4), ("command", 1, 3), ("env", 1, 7), ("envFrom", 1, 19), ("image", 1, 2),
        ("imagePullPolicy", 1, 14), ("lifecycle", 1, 12), ("livenessProbe", 1, 10), ("name", 1, 1),
        ("ports", 1, 6), ("readinessProbe", 1, 11), ("resizePolicy", 1, 23), ("resources", 1, 8),
        ("restartPolicy", 1, 24), ("restartPolicyRules", 1, 25), ("securityContext", 1, 15),
        ("startupProbe", 1, 22), ("stdin", 1, 16), ("stdinOnce", 1, 17), ("targetContainerName", 2, 0),
        ("terminationMessagePath", 1, 13), ("terminationMessagePolicy", 1, 20), ("tty", 1, 18),
        ("volumeDevices", 1, 21), ("volumeMounts", 1, 9), ("workingDir", 1, 5),
    ]),
    ("EphemeralVolumeSource", &[
        ("volumeClaimTemplate", 1, 0),
    ]),
    ("ExecAction", &[
        ("command", 1, 0),
    ]),
    ("FCVolumeSource", &[
        ("fsType", 3, 0), ("lun", 2, 0), ("readOnly", 4, 0), ("targetWWNs", 1, 0), ("wwids", 5, 0),
    ]),
    ("FileKeySelector", &[
        ("key", 3, 0), ("optional", 4, 0), ("path", 2, 0), ("volumeName", 1, 0),
    ]),
    ("FlexVolumeSource", &[
        ("driver", 1, 0), ("fsType", 2, 0), ("options", 5, 0), ("readOnly", 4, 0), ("secretRef", 3, 0),
    ]),
    ("FlockerVolumeSource", &[
        ("datasetName", 1, 0), ("datasetUUID", 2, 0),
    ]),
    ("GCEPersistentDiskVolumeSource", &[
        ("fsType", 2, 0), ("partition", 3, 0), ("pdName", 1, 0), ("readOnly", 4, 0),
    ]),
    ("GRPCAction", &[
        ("port", 1, 0), ("service", 2, 0),
    ]),
    ("GitRepoVolumeSource", &[
        ("directory", 3, 0), ("repository", 1, 0), ("revision", 2, 0),
    ]),
    ("GlusterfsVolumeSource", &[
        ("endpoints", 1, 0), ("path", 2, 0), ("readOnly", 3, 0),
    ]),
    ("HTTPGetAction", &[
        ("host", 3, 0), ("httpHeaders", 5, 0), ("path", 1, 0), ("port", 2, 0), ("scheme", 4, 0),
    ]),
    ("HTTPHeader", &[
        ("name", 1, 0), ("value", 2, 0),
    ]),
    ("HostAlias", &[
        ("hostnames", 2, 0), ("ip", 1, 0),
    ]),
    ("HostIP", &[
        ("ip", 1, 0),
    ]),
    ("HostPathVolumeSource", &[
        ("path", 1, 0), ("type", 2, 0),
    ]),
    ("ISCSIVolumeSource", &[
        ("chapAuthDiscovery", 8, 0), ("chapAuthSession", 11, 0), ("fsType", 5, 0), ("initiatorName", 12, 0),
        ("iqn", 2, 0), ("iscsiInterface", 4, 0), ("lun", 3, 0), ("portals", 7, 0), ("readOnly", 6, 0),
        ("secretRef", 10, 0), ("targetPortal", 1, 0),
    ]),
    ("ImageVolumeSource", &[
        ("pullPolicy", 2, 0), ("reference", 1, 0),
    ]),
    ("ImageVolumeStatus", &[
        ("imageRef", 1, 0),
    ]),
    ("KeyToPath", &[
        ("key", 1, 0), ("mode", 3, 0), ("path", 2, 0),
    ]),
    ("LabelSelector", &[
        ("matchExpressions", 2, 0), ("matchLabels", 1, 0),
    ]),
    ("LabelSelectorRequirement", &[
        ("key", 1, 0), ("operator", 2, 0), ("values", 3, 0),
    ]),
    ("Lifecycle", &[
        ("postStart", 1, 0), ("preStop", 2, 0), ("stopSignal", 3, 0),
    ]),
    ("LifecycleHandler", &[
        ("exec", 1, 0), ("httpGet", 2, 0), ("sleep", 4, 0), ("tcpSocket", 3, 0),
    ]),
    ("LinuxContainerUser", &[
        ("gid", 2, 0), ("supplementalGroups", 3, 0), ("uid", 1, 0),
    ]),
    ("LocalObjectReference", &[
        ("name", 1, 0),
    ]),
    ("ManagedFieldsEntry", &[
        ("apiVersion", 3, 0), ("fieldsType", 6, 0), ("fieldsV1", 7, 0), ("manager", 1, 0),
        ("operation", 2, 0), ("subresource", 8, 0), ("time", 4, 0),
    ]),
    ("NFSVolumeSource", &[
        ("path", 2, 0), ("readOnly", 3, 0), ("server", 1, 0),
    ]),
    ("NodeAffinity", &[
        ("preferredDuringSchedulingIgnoredDuringExecution", 2, 0),
        ("requiredDuringSchedulingIgnoredDuringExecution", 1, 0),
    ]),
    ("NodeAllocatableResourceClaimStatus", &[
        ("containers", 2, 0), ("resourceClaimName", 1, 0), ("resources", 3, 0),
    ]),
    ("NodeSelector", &[
        ("nodeSelectorTerms", 1, 0),
    ]),
    ("NodeSelectorRequirement", &[
        ("key", 1, 0), ("operator", 2, 0), ("values", 3, 0),
    ]),
    ("NodeSelectorTerm", &[
        ("matchExpressions", 1, 0), ("matchFields", 2, 0),
    ]),
    ("ObjectFieldSelector", &[
        ("apiVersion", 1, 0), ("fieldPath", 2, 0),
    ]),
    ("ObjectMeta", &[
        ("annotations", 12, 0), ("creationTimestamp", 8, 0), ("deletionGracePeriodSeconds", 10, 0),
        ("deletionTimestamp", 9, 0), ("finalizers", 14, 0), ("generateName", 2, 0), ("generation", 7, 0),
        ("labels", 11, 0), ("managedFields", 17, 0), ("name", 1, 0), ("namespace", 3, 0),
        ("ownerReferences", 13, 0), ("resourceVersion", 6, 0), ("selfLink", 4, 0), ("uid", 5, 0),
    ]),
    ("OwnerReference", &[
        ("apiVersion", 5, 0), ("blockOwnerDeletion", 7, 0), ("controller", 6, 0), ("kind", 1, 0),
        ("name", 3, 0), ("uid", 4, 0),
    ]),
    ("PersistentVolumeClaimSpec", &[
        ("accessModes", 1, 0), ("dataSource", 7, 0), ("dataSourceRef", 8, 0), ("resources", 2, 0),
        ("selector", 4, 0), ("storageClassName", 5, 0), ("volumeAttributesClassName", 9, 0),
        ("volumeMode", 6, 0), ("volumeName", 3, 0),
    ]),
    ("PersistentVolumeClaimTemplate", &[
        ("metadata", 1, 0), ("spec", 2, 0),
    ]),
    ("PersistentVolumeClaimVolumeSource", &[
        ("claimName", 1, 0), ("readOnly", 2, 0),
    ]),
    ("PhotonPersistentDiskVolumeSource", &[
        ("fsType", 2, 0), ("pdID", 1, 0),
    ]),
    ("Pod", &[
        ("metadata", 1, 0), ("spec", 2, 0), ("status", 3, 0),
    ]),
    ("PodAffinity", &[
        ("preferredDuringSchedulingIgnoredDuringExecution", 2, 0),
        ("requiredDuringSchedulingIgnoredDuringExecution", 1, 0),
    ]),
    ("PodAffinityTerm", &[
        ("labelSelector", 1, 0), ("matchLabelKeys", 5, 0), ("mismatchLabelKeys", 6, 0),
        ("namespaceSelector", 4, 0), ("namespaces", 2, 0), ("topologyKey", 3, 0),
    ]),
    ("PodAntiAffinity", &[
        ("preferredDuringSchedulingIgnoredDuringExecution", 2, 0),
        ("requiredDuringSchedulingIgnoredDuringExecution", 1, 0),
    ]),
    ("PodCertificateProjection", &[
        ("certificateChainPath", 6, 0), ("credentialBundlePath", 4, 0), ("keyPath", 5, 0), ("keyType", 2, 0),
        ("maxExpirationSeconds", 3, 0), ("signerName", 1, 0), ("userAnnotations", 7, 0),
    ]),
    ("PodCondition", &[
        ("lastProbeTime", 3, 0), ("lastTransitionTime", 4, 0), ("message", 6, 0),
        ("observedGeneration", 7, 0), ("reason", 5, 0), ("status", 2, 0), ("type", 1, 0),
    ]),
    ("PodDNSConfig", &[
        ("nameservers", 1, 0), ("options", 3, 0), ("searches", 2, 0),
    ]),
    ("PodDNSConfigOption", &[
        ("name", 1, 0), ("value", 2, 0),
    ]),
    ("PodExtendedResourceClaimStatus", &[
        ("requestMappings", 1, 0), ("resourceClaimName", 2, 0),
    ]),
    ("PodIP", &[
        ("ip", 1, 0),
    ]),
    ("PodOS", &[
        ("name", 1, 0),
    ]),
    ("PodReadinessGate", &[
        ("conditionType", 1, 0),
    ]),
    ("PodResourceClaim", &[
        ("name", 1, 0), ("resourceClaimName", 3, 0), ("resourceClaimTemplateName", 4, 0),
    ]),
    ("PodResourceClaimStatus", &[
        ("name", 1, 0), ("resourceClaimName", 2, 0),
    ]),
    ("PodSchedulingGate", &[
        ("name", 1, 0),
    ]),
    ("PodSchedulingGroup", &[
        ("podGroupName", 1, 0),
    ]),
    ("PodSecurityContext", &[
        ("appArmorProfile", 11, 0), ("fsGroup", 5, 0), ("fsGroupChangePolicy", 9, 0), ("runAsGroup", 6, 0),
        ("runAsNonRoot", 3, 0), ("runAsUser", 2, 0), ("seLinuxChangePolicy", 13, 0), ("seLinuxOptions", 1, 0),
        ("seccompProfile", 10, 0), ("supplementalGroups", 4, 0), ("supplementalGroupsPolicy", 12, 0),
        ("sysctls", 7, 0), ("windowsOptions", 8, 0),
    ]),
    ("PodSpec", &[
        ("activeDeadlineSeconds", 5, 0), ("affinity", 18, 0), ("automountServiceAccountToken", 21, 0),
        ("containers", 2, 0), ("dnsConfig", 26, 0), ("dnsPolicy", 6, 0), ("enableServiceLinks", 30, 0),
        ("ephemeralContainers", 34, 0), ("hostAliases", 23, 0), ("hostIPC", 13, 0), ("hostNetwork", 11, 0),
        ("hostPID", 12, 0), ("hostUsers", 37, 0), ("hostname", 16, 0), ("hostnameOverride", 41, 0),
        ("imagePullSecrets", 15, 0), ("initContainers", 20, 0), ("nodeName", 10, 0), ("nodeSelector", 7, 0),
        ("os", 36, 0), ("overhead", 32, 0), ("preemptionPolicy", 31, 0), ("priority", 25, 0),
        ("priorityClassName", 24, 0), ("readinessGates", 28, 0), ("resourceClaims", 39, 0),
        ("resources", 40, 0), ("restartPolicy", 3, 0), ("runtimeClassName", 29, 0), ("schedulerName", 19, 0),
        ("schedulingGates", 38, 0), ("schedulingGroup", 43, 0), ("securityContext", 14, 0),
        ("serviceAccount", 9, 0), ("serviceAccountName", 8, 0), ("setHostnameAsFQDN", 35, 0),
        ("shareProcessNamespace", 27, 0), ("subdomain", 17, 0), ("terminationGracePeriodSeconds", 4, 0),
        ("tolerations", 22, 0), ("topologySpreadConstraints", 33, 0), ("volumes", 1, 0),
    ]),
    ("PodStatus", &[
        ("allocatedResources", 19, 0), ("conditions", 2, 0), ("containerStatuses", 8, 0),
        ("ephemeralContainerStatuses", 13, 0), ("extendedResourceClaimStatus", 18, 0), ("hostIP", 5, 0),
        ("hostIPs", 16, 0), ("initContainerStatuses", 10, 0), ("message", 3, 0),
        ("nodeAllocatableResourceClaimStatuses", 21, 0), ("nominatedNodeName", 11, 0),
        ("observedGeneration", 17, 0), ("phase", 1, 0), ("podIP", 6, 0), ("podIPs", 12, 0),
        ("qosClass", 9, 0), ("reason", 4, 0), ("resize", 14, 0), ("resourceClaimStatuses", 15, 0),
        ("resources", 20, 0), ("startTime", 7, 0),
    ]),
    ("PortworxVolumeSource", &[
        ("fsType", 2, 0), ("readOnly", 3, 0), ("volumeID", 1, 0),
    ]),
    ("PreferredSchedulingTerm", &[
        ("preference", 2, 0), ("weight", 1, 0),
    ]),
    ("Probe", &[
        ("exec", 1, 1), ("failureThreshold", 6, 0), ("grpc", 1, 4), ("httpGet", 1, 2),
        ("initialDelaySeconds", 2, 0), ("periodSeconds", 4, 0), ("successThreshold", 5, 0),
        ("tcpSocket", 1, 3), ("terminationGracePeriodSeconds", 7, 0), ("timeoutSeconds", 3, 0),
    ]),
    ("ProjectedVolumeSource", &[
        ("defaultMode", 2, 0), ("sources", 1, 0),
    ]),
    ("QuobyteVolumeSource", &[
        ("group", 5, 0), ("readOnly", 3, 0), ("registry", 1, 0), ("tenant", 6, 0), ("user", 4, 0),
        ("volume", 2, 0),
    ]),
    ("RBDVolumeSource", &[
        ("fsType", 3, 0), ("image", 2, 0), ("keyring", 6, 0), ("monitors", 1, 0), ("pool", 4, 0),
        ("readOnly", 8, 0), ("secretRef", 7, 0), ("user", 5, 0),
    ]),
    ("ResourceClaim", &[
        ("name", 1, 0), ("request", 2, 0),
    ]),
    ("ResourceFieldSelector", &[
        ("containerName", 1, 0), ("divisor", 3, 0), ("resource", 2, 0),
    ]),
    ("ResourceHealth", &[
        ("health", 2, 0), ("message", 6, 0), ("resourceID", 1, 0),
    ]),
    ("ResourceRequirements", &[
        ("claims", 3, 0), ("limits", 1, 0), ("requests", 2, 0),
    ]),
    ("ResourceStatus", &[
        ("name", 1, 0), ("resources", 2, 0),
    ]),
    ("SELinuxOptions", &[
        ("level", 4, 0), ("role", 2, 0), ("type", 3, 0), ("user", 1, 0),
    ]),
    ("ScaleIOVolumeSource", &[
        ("fsType", 9, 0), ("gateway", 1, 0), ("protectionDomain", 5, 0), ("readOnly", 10, 0),
        ("secretRef", 3, 0), ("sslEnabled", 4, 0), ("storageMode", 7, 0), ("storagePool", 6, 0),
        ("system", 2, 0), ("volumeName", 8, 0),
    ]),
    ("SeccompProfile", &[
        ("localhostProfile", 2, 0), ("type", 1, 0),
    ]),
    ("SecretEnvSource", &[
        ("name", 1, 1), ("optional", 2, 0),
    ]),
    ("SecretKeySelector", &[
        ("key", 2, 0), ("name", 1, 1), ("optional", 3, 0),
    ]),
    ("SecretProjection", &[
        ("items", 2, 0), ("name", 1, 1), ("optional", 4, 0),
    ]),
    ("SecretVolumeSource", &[
        ("defaultMode", 3, 0), ("items", 2, 0), ("optional", 4, 0), ("secretName", 1, 0),
    ]),
    ("SecurityContext", &[
        ("allowPrivilegeEscalation", 7, 0), ("appArmorProfile", 12, 0), ("capabilities", 1, 0),
        ("privileged", 2, 0), ("procMount", 9, 0), ("readOnlyRootFilesystem", 6, 0), ("runAsGroup", 8, 0),
        ("runAsNonRoot", 5, 0), ("runAsUser", 4, 0), ("seLinuxOptions", 3, 0), ("seccompProfile", 11, 0),
        ("windowsOptions", 10, 0),
    ]),
    ("ServiceAccountTokenProjection", &[
        ("audience", 1, 0), ("expirationSeconds", 2, 0), ("path", 3, 0),
    ]),
    ("SleepAction", &[
        ("seconds", 1, 0),
    ]),
    ("StorageOSVolumeSource", &[
        ("fsType", 3, 0), ("readOnly", 4, 0), ("secretRef", 5, 0), ("volumeName", 1, 0),
        ("volumeNamespace", 2, 0),
    ]),
    ("Sysctl", &[
        ("name", 1, 0), ("value", 2, 0),
    ]),
    ("TCPSocketAction", &[
        ("host", 2, 0), ("port", 1, 0),
    ]),
    ("Toleration", &[
        ("effect", 4, 0), ("key", 1, 0), ("operator", 2, 0), ("tolerationSeconds", 5, 0), ("value", 3, 0),
    ]),
    ("TopologySpreadConstraint", &[
        ("labelSelector", 4, 0), ("matchLabelKeys", 8, 0), ("maxSkew", 1, 0), ("minDomains", 5, 0),
        ("nodeAffinityPolicy", 6, 0), ("nodeTaintsPolicy", 7, 0), ("topologyKey", 2, 0),
        ("whenUnsatisfiable", 3, 0),
    ]),
    ("TypedLocalObjectReference", &[
        ("apiGroup", 1, 0), ("kind", 2, 0), ("name", 3, 0),
    ]),
    ("TypedObjectReference", &[
        ("apiGroup", 1, 0), ("kind", 2, 0), ("name", 3, 0), ("namespace", 4, 0),
    ]),
    ("Volume", &[
        ("awsElasticBlockStore", 2, 4), ("azureDisk", 2, 22), ("azureFile", 2, 18), ("cephfs", 2, 14),
        ("cinder", 2, 13), ("configMap", 2, 19), ("csi", 2, 28), ("downwardAPI", 2, 16), ("emptyDir", 2, 2),
        ("ephemeral", 2, 29), ("fc", 2, 17), ("flexVolume", 2, 12), ("flocker", 2, 15),
        ("gcePersistentDisk", 2, 3), ("gitRepo", 2, 5), ("glusterfs", 2, 9), ("hostPath", 2, 1),
        ("image", 2, 30), ("iscsi", 2, 8), ("name", 1, 0), ("nfs", 2, 7), ("persistentVolumeClaim", 2, 10),
        ("photonPersistentDisk", 2, 23), ("portworxVolume", 2, 24), ("projected", 2, 26), ("quobyte", 2, 21),
        ("rbd", 2, 11), ("scaleIO", 2, 25), ("secret", 2, 6), ("storageos", 2, 27), ("vsphereVolume", 2, 20),
    ]),
    ("VolumeDevice", &[
        ("devicePath", 2, 0), ("name", 1, 0),
    ]),
    ("VolumeMount", &[
        ("mountPath", 3, 0), ("mountPropagation", 5, 0), ("name", 1, 0), ("readOnly", 2, 0),
        ("recursiveReadOnly", 7, 0), ("subPath", 4, 0), ("subPathExpr", 6, 0),
    ]),
    ("VolumeMountStatus", &[
        ("mountPath", 2, 0), ("name", 1, 0), ("readOnly", 3, 0), ("recursiveReadOnly", 4, 0),
        ("volumeStatus", 5, 0),
    ]),
    ("VolumeProjection", &[
        ("clusterTrustBundle", 5, 0), ("configMap", 3, 0), ("downwardAPI", 2, 0), ("podCertificate", 6, 0),
        ("secret", 1, 0), ("serviceAccountToken", 4, 0),
    ]),
    ("VolumeResourceRequirements", &[
        ("limits", 1, 0), ("requests", 2, 0),
    ]),
    ("VolumeStatus", &[
        ("image", 1, 0),
    ]),
    ("VsphereVirtualDiskVolumeSource", &[
        ("fsType", 2, 0), ("storagePolicyID", 4, 0), ("storagePolicyName", 3, 0), ("volumePath", 1, 0),
    ]),
    ("WeightedPodAffinityTerm", &[
        ("podAffinityTerm", 2, 0), ("weight", 1, 0),
    ]),
    ("WindowsSecurityContextOptions", &[
        ("gmsaCredentialSpec", 2, 0), ("gmsaCredentialSpecName", 1, 0), ("hostProcess", 4, 0),
        ("runAsUserName", 3, 0),
    ]),
];
