"""Words that tell nothing of anybody, and words that the diagnosis reads: they stay even where they name a machine or a person."""

from gpudoctor.patterns import pattern

ORDINARY = frozenset(
    # accounts and machines that everybody has
    "root nobody nogroup daemon bin sys sync games man lp mail news uucp www-data backup list irc ubuntu debian centos fedora rocky "
    "almalinux redhat rhel suse opensuse arch ec2-user core vagrant nvidia nvidia-persistenced docker containerd kubelet systemd "
    "systemd-network systemd-resolve systemd-timesync kernel localhost localdomain localhost.localdomain user users admin administrator "
    "operator slurm slurmd slurmctld munge gdm lightdm sddm messagebus dbus polkitd sshd chrony ntp syslog rsyslog rtkit avahi libvirt "
    "libvirt-qemu qemu kvm gpudoctor none null unknown unset default shared public guest test linux local lan home internal corp intra "
    "cloud com net org edu gov dev io ai svc cluster git oauth2 "
    # fixed components of paths, and words of the device tree
    "dev proc pci pcie bus class devices device etc usr var run tmp lib lib32 lib64 sbin boot opt mnt srv media modules module parameters "
    "driver drivers firmware fs cgroup power block char net mem cpu numa node nodes gpu gpus card host hosts port slot subsystem uevent "
    "config resource vendor virtual platform pnp acpi dmi thunderbolt usb scsi nvme iommu msi irq state stack status comm stat "
    # words of logs and of their readers
    "error errors warning warn critical fatal fail failed failure info debug ddebug subdebug notice trace true false yes no on off not "
    "responding from for by the and with user-runtime uid gid pid name server client service session xid nvrm nvlink nvswitch sxid gsp "
    "rm uvm drm modeset fabricmanager fabric manager persistenced toolkit runtime container containers image images pod pods namespace "
    "version loaded loading load unload open close start started stop stopped timeout reset recovery row remap ecc memory bar pcieport "
    "cuda dcgm mps mig vgpu grid license tesla hopper ampere blackwell vm xen hyperv kvm-clock hpc cluster rack main master worker "
    "latest stable release identity passthrough auto all any".split()
)
"""Names of machines and accounts that tell nothing, occur as ordinary words, or are parts of fixed paths."""

_DEVICE = pattern(
    r"(?:nvidia|gpu|card|render[dD]|controlD|nvme|sd[a-z]|vd[a-z]|xvd[a-z]|dm-|md|loop|sr|tty|ttyS|eth|ib|mlx\d_|wlan|eno|ens|cpu|node|host|"
    r"pci|usb|ata|scsi|slot|port|nvswitch|nvlink|nvidia-\w*)(?:0|[1-9]\d{0,2})?(?:[np]\d+)*",
)
_PRODUCT = pattern(r"(?:nvidia|cuda|dcgm|kube|gpu-operator|gpu-feature|nvsm|nv-)[\w.-]*|python\d?[\d.]*")
_SHORT_HEXADECIMAL = pattern(r"[0-9a-fA-F]{1,4}")


def tells(name: str) -> bool:
    """Whether a name of a machine or a person tells who that is."""
    lower = name.lower()
    return (
        len(name) > 1
        and not lower.isdecimal()
        and any(character.isalpha() for character in lower)
        and lower not in ORDINARY
        and not _DEVICE.fullmatch(lower)
        and not _PRODUCT.fullmatch(lower)
    )


def learnable(name: str) -> bool:
    """Whether a name can be looked for everywhere: `c3` is part of many addresses."""
    return tells(name) and not _SHORT_HEXADECIMAL.fullmatch(name)


def is_peculiar(name: str) -> bool:
    """Whether a word can hardly be anything but a name."""
    return len(name) > 4 and any(character in "-_0123456789" for character in name) and learnable(name)


TOP_LEVEL = frozenset(
    "com net org io dev ai edu gov mil info biz local internal corp lan intra home cloud int arpa de uk cn jp fr".split()
)
COUNTRIES = frozenset(
    "us ca au in it es nl se no fi pl ch at be ru br kr eu cz dk ie sg tw hk za mx il nz pt gr hu ro tr cluster consul hpc".split()
)
"""Ends of domains that are ends of other things as well: taken for a domain's behind two dots only."""

CAPITAL_TOP_LEVEL = TOP_LEVEL - {"dev", "home", "io", "ai", "de", "int"}
"""ACPI spells its devices in capitals: \\_SB.PC00.DEV."""

FILE_ENDS = frozenset(("local", "home", "dev", "io", "ai", "in", "com", "org"))
"""Behind a slash these are ends of files: /etc/rc.local."""

PUBLIC_DOMAINS = frozenset((
    "io.containerd.transfer.v1.local",
    "nvidia.com", "nvcr.io", "mellanox.com", "docker.io", "docker.com", "k8s.io", "kubernetes.io", "kernel.org", "github.com",
    "githubusercontent.com", "ubuntu.com", "canonical.com", "debian.org", "redhat.com", "fedoraproject.org", "rockylinux.org",
    "almalinux.org", "centos.org", "suse.com", "opensuse.org", "archlinux.org", "amazon.com", "python.org", "pypi.org",
    "pythonhosted.org", "pytorch.org", "systemd.io", "freedesktop.org", "gnu.org", "oraclecloud.com", "launchpad.net", "cncf.io",
    "opencontainers.org", "containerd.io", "containers.dev", "prometheus.io", "quay.io", "gcr.io", "ghcr.io", "mcr.microsoft.com",
    "x.org", "intel.com", "amd.com", "infradead.org", "lwn.net", "schedmd.com", "hooks.slack.com", "huggingface.co", "example.org",
    "example.com", "rc.local", "google.com", "metadata.google.internal", "nvmexpress.org", "svc.cluster.local", "cluster.local",
))  # fmt: skip
"""Domains that everybody's nodes name; whatever lies below one of them stays."""


def is_public_domain(name: str) -> bool:
    """Whether a domain is one that everybody's nodes name, or lies below one."""
    parts = name.lower().split(".")
    return any(".".join(parts[at:]) in PUBLIC_DOMAINS for at in range(len(parts)))


PUBLIC_IMAGES = ("nvcr.io/nvidia/", "docker.io/library/", "docker.io/nvidia/", "nvidia/", "library/", "ghcr.io/nvidia/", "k8s.gcr.io/",
                 "registry.k8s.io/", "lib/", "usr/", "bin/", "etc/", "dev/", "nvidia.com/", "amd.com/")  # fmt: skip

URL_WORDS = frozenset("api index.html latest metrics healthz health status simple nodes dists pool stable main".split())

GPU_VARIABLE = pattern(
    r"(?:NVIDIA|CUDA|TORCH_CUDA|NCCL|NVSHMEM|NV|UCX|LD|DCGM|MPS|MIG|GPU|PMIX|SLURM_(?:GPUS|JOB_GPUS|STEP_GPUS|GRES))(?:_\w*)?\Z|"
    r"(?:BOOT_IMAGE|PATH|LANG|LC_ALL|TERM|TTY|PWD|COMMAND|FEATURE_GATES|PRETTY_NAME|VERSION(?:_ID)?|ID|NAME|UUID|PARTUUID|PID|UID|GID|CPU|IRQ|ARCH)\Z"
)
"""Environment variables whose values stay, and fields of logs that look like some."""

FIELD = pattern(
    # nf_log_syslog's (net/netfilter/nf_log_syslog.c)
    r"(?:IN|OUT|MAC|SRC|DST|LEN|TOS|PREC|TTL|ID|PROTO|SPT|DPT|WINDOW|RES|URGP|MARK|SEQ|ACK|OPT|TYPE|CODE|MTU|PHYSIN|PHYSOUT|"
    r"HOPLIMIT|FLOWLBL|INCOMPLETE|MACSRC|MACDST|MACPROTO|VPROTO|VID|"
    # of kernel builds
    r"CONFIG_\w+|KERNEL\w*|SYSSRC|SYSOUT|SYSSRCHOST1X|MODLIB|HOSTCC|KBUILD\w*|INSTALL_\w+|IGNORE_\w+|CFLAGS\w*|LDFLAGS\w*|MAKE\w*|"
    # of udev
    r"SUBSYSTEM|ACTION|DEVPATH|DEVNAME|MODALIAS|DRIVER|PCI_\w+|MAJOR|MINOR|SEQNUM|MODE|GROUP|OWNER|PROGRAM|RUN|SYMLINK|TAG)\Z"
)
"""Fields that look like environment variables and are none."""

PERSON_VARIABLE = pattern(r"(?:\w+_)?(?:USER|LOGNAME|USERNAME)\Z")
HOST_VARIABLE = pattern(r"(?:HOSTNAME|HOST|\w*NODENAME)\Z")

KEPT_PARAMETER = pattern(
    r"(?:nvidia|nouveau|nova|vfio|modprobe|module_blacklist|rd\.driver|rdblacklist|pci|pcie|iommu|intel_iommu|amd_iommu|video|lockdown|"
    r"module|default_hugepagesz|hugepages|hugepagesz|systemd\.unified|cgroup|swiotlb|mem|numa|isolcpus|mitigations|kaslr|uvm|efi|"
    r"BOOT_IMAGE|console|crashkernel|rootfstype|security|firmware_class|initcall_blacklist)[\w.-]*\Z"
)
"""Parameters of the kernel whose values stay."""

ENGINES = ("dockerd", "containerd", "crio", "kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent", "rke2")
"""Daemons whose command line says which configuration applies."""
PLACE_OPTION = pattern(
    r"-{1,2}(?:config(?:-file|-dir)?|c|d|host|H|containerd|address|a|(?:data-|exec-)?root|state|add-runtime|default-runtime|runtimes?|"
    r"default-cgroup-manager|cgroup-(?:driver|manager)|exec-opt|container-runtime(?:-endpoint)?|container-runtime-endpoint|"
    r"hooks-dir|cdi-spec-dirs?|feature|selinux|userns-remap|log-level|root-dir|reserved-cpus|kubelet-arg|"
    r"(?:topology|cpu|memory)-manager-policy|topology-manager-scope)(?:=|$)"
)
"""Options of theirs that name configurations, sockets, folders, runtimes and drivers."""
