"""Redacted recordings: no planted secret is left in any form, what a diagnosis needs is, and the diagnosis is the same.

Written against the contract (docs/snapshot-format.md) and the forms of real logs, not against the rules of the redaction.
"""

import base64
import binascii
import fcntl
import hashlib
import json
import re
import socket
import stat
import string
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import zip_longest
from pathlib import Path
from urllib.parse import unquote

import pytest

from gpudoctor import cli
from gpudoctor.facts.pci_config import config_bytes, extended_capability
from gpudoctor.report import Report
from gpudoctor.sources.redaction import Redacted, redact
from gpudoctor.sources.snapshot import open_snapshot
from gpudoctor.sources.writing import write_snapshot
from gpudoctor.testing import fixtures, run_node
from tests.live_root import make_root
from tests.sweeping import recorded_nodes, thinned

SALT = b"planted-salt-of-this-site-0123456789"
NODES = recorded_nodes()
_ALPHABET = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"


def made(prefix: str, length: int, letters: str = _ALPHABET) -> str:
    """A token of a known form that no scanner of repositories can take for a real one: it stands nowhere in full."""
    return prefix + "".join(letters[byte % len(letters)] for byte in hashlib.shake_256(prefix.encode()).digest(length))


_PLAIN = """
host.own theoden17            host.domain rohan-labs           host.pod gpudoctor-x7k2p       host.nfs helmsdeep-nas
host.cifs edoras-files        host.iscsi gondor-san            host.nvmeof minas-nvme         host.ldap dc-mordor
host.license lic-orthanc      host.vgpu-license nls-numenor    host.ntp ntp-fangorn           host.slurm slurmctl-bree
host.builder buildbox-moria   host.rhost login-rivendell       host.ec2 ec2-45-76-200-118     host.mirror mirror-bagend
host.splunk splunk-amonhen    host.proxy proxy-weathertop      domain.ad isengard-corp        domain.netbios ISENGARDCO
domain.realm MINASIRTH-CORP   wifi.ssid EdorasHall-5G
user.home eowynkk             user.make faramirx               user.sudo pippin2t             user.sshd samwise4
user.failed gollum88          user.pam merry_bb                user.logind boromir5           user.systemd gimli-gl
user.audit denethor7          user.unit haldir3x               user.cron elrond66             user.ad grima.ww
user.env bilbo_bb             user.apt arwen.uu                user.new celeborn9             user.slurm glorfindel1
user.remap tauriel77          user.builder gothmog_b           user.process quickbeam5        user.key-comment shadowfax8
serial.board-in-log 1654922099001        serial.gpu-in-log 1654922099117           serial.smi 1654922099233
serial.pdi 0x5f3c9a71d2e84b06            serial.chassis-of-tray 1820325190123      serial.nvml 1653224077048
serial.usb 4C530001230912117383          serial.disk-by-id S64GNN0T512345          serial.disk-smart ZC1A9K3F
serial.wwn 5000c500c1a2b3d4              serial.wwn-smart 5-000c50-0c1a2b3d5       serial.dimm 80CE032318F4A2B1
serial.ppin 3c1a9f77b2e4d608             serial.dmi-board ZM22BS041177             serial.dmi-product S411795X2B00321
serial.dmi-chassis C8480LK23NF0042       serial.dmi-asset RL-ASSET-00917
uuid.product 7c1f9a00-5b1d-11ee-8000-3cecef1a2b3c      uuid.machine 8f3b61d2c4a54e0c9b7712aa64fd0e35
uuid.root 4f74a496-df57-ad84-7b63-5371cd0550fe         uuid.luks c2d7e9b1-30f4-4c6e-a0b8-91f6d2e4a7c5
mac.colon a0:88:c2:3c:1d:5e   mac.dash 3c-ec-ef-9a-77-01       mac.upper B8:3F:D2:0A:4C:EE    mac.in-name 3cecef5566aa
mac.firewall 3c:ec:ef:41:42:43           mac.infiniband b8:3f:d2:03:00:0a:b1:c4    mac.eui64 ba3f:d2ff:fe0a:4d11
ip.cmdline 45.76.200.113      ip.gateway 45.76.201.254         ip.proxy 45.76.200.114         ip.sshd 45.76.200.115
ip.firewall 45.76.200.116     ip.dns 45.76.200.117             ip.ntp 45.76.200.119           ip.mapped 45.76.200.120
ip.v6 2a0e:97c0:5a1:17::42    ip.v6-port 2a0e:97c0:5a1:18:0:9:2c:7      ip.v6-full 2a0e:97c0:05a1:0019:0000:0000:0000:0d42
password.proxy Mellon-4711x              password.url-encoded Khazad@Dum/88        password.git Athelas!22b
password.daemon-json Palantir#9q         password.json-escaped Nár/silmaril"7      password.environment Anduril_77z
password.argument Orcrist-31k            password.argument-equals Glamdring-58     password.short-option Sting0x9ff
password.basic Balrog-Flame6             password.user-option Uruk-hai-907         password.mount Isildur_bane3
password.iscsi Rammas-Echor4             password.yaml Lembas-crumb8               password.proctitle Shelobs-Lair2
password.redis Nimrodel-f55              password.ipmi Amroth-bmc71
value.cmdline palantirstone   value.cmdline-path henneth-annun value.vg simbelmyne-vg         value.environment mithril-model
value.environ-nul ithildin-door          value.argument numenor-dataset
image.registry lothlorien-ai  image.project galadhrim-llm      image.tag v7.3.1-fellowship    image.hub nazgulteam/trainer9
image.mirror-path silmarillion-base
pod.name ring-trainer-worker-0           pod.namespace team-sauron                 pod.container barad-dur-main
vm.name shelob-vm             vm.lxc smaug-ct7
email.os-release ops-gandalf@rohan-labs.lan            email.comment t.bombadil@oldforest-hpc.org
email.waiver radagast.brown@rhosgobel.net              email.certificate secureboot-admins@rhosgobel.net
""".split()
"""Each secret's name and what it is."""

_KEY = _ALPHABET + "/+"
SECRETS = dict(zip(_PLAIN[::2], _PLAIN[1::2], strict=True)) | {
    "token.bearer": made("8xQw", 40),
    "token.jwt": f"{made('eyJhbGci', 24)}.{made('eyJzdWIi', 50)}.{made('sG', 43)}",
    "token.aws-id": made("AKIA", 16, string.ascii_uppercase + "234567"),
    "token.aws-secret": made("wJal", 36, _KEY),
    "token.aws-session": made("FwoGZXIv", 120, _KEY),
    "token.github": made("ghp_", 36),
    "token.github-fine": made("github_pat_", 82),
    "token.gitlab": made("glpat-", 20),
    "token.slack": made("xoxb-", 12, string.digits) + made("-", 24),
    "token.slack-hook": made("T0", 9) + made("/B0", 9) + made("/w", 23),
    "token.hf": made("hf_", 34),
    "token.nvapi": made("nvapi-", 64),
    "token.in-nvidia-variable": made("nvapi-x", 60),
    "token.ngc": made("bmdj", 80),
    "token.openai": made("sk-proj-", 48),
    "token.wandb": made("7d", 38, _HEX),
    "token.gcp": made("AIza", 35),
    "token.azure": made("9k", 84, _KEY) + "==",
    "token.kubeadm": f"{made('k', 5, _HEX)}.{made('a', 15, _HEX)}",
    "token.vault": made("hvs.", 90),
    "token.splunk": "1f6d7a04-9c1b-4e2f-8b53-5a1c0de7f942",
    "token.ceph": made("AQB", 35) + "==",
    "token.url-query": made("q1", 30),
    "key.pem-line": made("MIIEvQ", 58, _KEY),
    "key.pem-in-json": made("MIIEwA", 58, _KEY),
    "key.pem-cut": made("MHcCAQ", 58, _KEY),
    "key.ssh-public": made("AAAAC3NzaC1lZDI1NTE5AAAAI", 43, _KEY),
    "key.ssh-fingerprint": made("Zq", 41, _KEY),
    "key.wireguard": made("kE", 41, _KEY) + "=",
    "image.digest": made("9f86d0", 58, _HEX),
}

ENCODED = {
    "password.url-encoded": "Khazad%40Dum%2F88",
    "password.json-escaped": 'N\\u00e1r\\/silmaril\\"7',
    "password.basic": base64.b64encode(f"svc-balin:{SECRETS['password.basic']}".encode()).decode(),
    "password.proctitle": f"mysql\0-p{SECRETS['password.proctitle']}".encode().hex().upper(),
    "token.ngc": base64.b64encode(f"$oauthtoken:{SECRETS['token.ngc']}".encode()).decode(),
    "vm.name": "shelob\\x2dvm",
    "value.vg": "simbelmyne--vg",
}
"""How the source spells a secret where it does not spell it plainly."""


def planted_text(text: str) -> str:
    """A text with its secrets in place."""
    return re.sub("«([^»]+)»", lambda name: ENCODED.get(name[1]) or SECRETS[name[1]], text)


CMDLINE = (
    "BOOT_IMAGE=/boot/vmlinuz-5.15.0-139-generic root=UUID=«uuid.root» ro rd.luks.uuid=luks-«uuid.luks» "
    "rd.lvm.lv=«value.vg»/root resume=/dev/disk/by-id/nvme-SAMSUNG_MZQL21T9HCJR-00A07_«serial.disk-by-id»-part3 "
    "ip=«ip.cmdline»::«ip.gateway»:255.255.255.0:«host.own»:eth0:none:«ip.dns» BOOTIF=01-«mac.dash» custom=«value.cmdline» "
    "init=/opt/«value.cmdline-path»/init systemd.machine_id=«uuid.machine» rd.iscsi.initiator=iqn.2004-10.lan.«host.iscsi»:lun7 "
    "rd.iscsi.password=«password.iscsi» inst.ks=https://ks.«host.domain».lan/gpu.ks?token=«token.url-query» "
    "iommu=pt module_blacklist=nouveau nvidia.NVreg_EnableGpuFirmware=1 pci=realloc=off console=ttyS0,115200n8"
)

KERNEL = f"""\
Linux version 5.15.0-139-generic («user.builder»@«host.builder») (gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0) #149-Ubuntu SMP
Command line: {CMDLINE}
Loaded X.509 cert 'Rohan GPU: emailAddress=«email.certificate»: 4f9a2b7700112233445566778899aabbccddeeff'
systemd[1]: Hostname set to <«host.own».hpc.«host.domain».lan>.
systemd[1]: Mounting home-«user.home».mount - /home/«user.home»...
systemd[1]: dev-mapper-«host.own»\\x2d\\x2dvg\\x2droot.device: Job timed out.
systemd[1]: Started Session 42 of User «user.systemd».
igb 0000:04:00.0: eth0: (PCIe:5.0Gb/s:Width x4) «mac.colon»
cdc_ether 1-14.3:2.0 enx«mac.in-name»: renamed from eth0
IPv6: eth1: IPv6 duplicate address fe80::«mac.eui64» used by «mac.colon» detected!
[UFW BLOCK] IN=eth0 OUT= MAC=«mac.firewall»:00:1b:17:00:01:30:08:00 SRC=«ip.firewall» DST=10.20.30.41 LEN=60 PROTO=TCP SPT=51512 DPT=22
TCP: request_sock_TCP: Possible SYN flooding on [::ffff:«ip.mapped»]:443. Sending cookies.
nfs: server «host.nfs» not responding, still trying
nfs: server 10.20.30.41 not responding, timed out
CIFS: VFS: \\\\«host.cifs» has not responded in 180 seconds. Reconnecting...
CIFS: mount error: ver=3.1.1,user=svc,password=«password.mount»,domain=«domain.netbios»
libceph: mon0 (1)172.16.5.9:6789 session established, name=admin,secret=«token.ceph»
nvme nvme1: new ctrl: NQN "nqn.2014-08.lan.rohan:nvme:«host.nvmeof»", addr 192.168.122.1:4420
usb 1-14: SerialNumber: «serial.usb»
scsi 10:0:0:0: SSP: handle(0x0011), sas_addr(0x«serial.wwn»), phy(3), device_name(0x«serial.wwn»)
EXT4-fs (nvme0n1p2): mounted filesystem «uuid.root» r/w with ordered data mode. Quota mode: none.
mce: [Hardware Error]: PROCESSOR 0:c06f2 TIME 1764412605 SOCKET 0 APIC 0 microcode 2b000590 PPIN «serial.ppin»
NVRM: GPU at PCI:0000:18:00: GPU-61803c11-6b95-1b34-eb4a-d48864d13bda
NVRM: GPU Board Serial Number: «serial.board-in-log»
NVRM: GPU 0000:2a:00.0: GPU serial number is «serial.gpu-in-log».
NVRM: Xid (PCI:0000:18:00): 31, pid=48213, name=python3, Ch 00000008, intr 10000000. MMU Fault: ENGINE GRAPHICS faulted
audit: type=1112 audit(1764412605.101:42): pid=99 uid=0 auid=1000 ses=3 msg='op=login acct="«user.audit»" hostname=«host.rhost» res=success'
audit: type=1327 audit(1764412605.101:43): proctitle=«password.proctitle»
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/lxc.payload.«vm.lxc»,task_memcg=/machine.slice/machine-qemu\\x2d3\\x2d«vm.name».scope,task=python3"""

UNIT_JOURNAL = """\
configure-nvidia.sh[2177]: + export HTTPS_PROXY=http://«user.env»:«password.proxy»@«host.proxy»:3128
configure-nvidia.sh[2177]: + export NO_PROXY=10.0.0.0/8,fd12:3456:789a::17
configure-nvidia.sh[2177]: + curl -s -H 'Authorization: Bearer «token.bearer»' https://[«ip.v6-port»]:8443/v1/nodes
configure-nvidia.sh[2177]: + curl -u svc-gpu:«password.user-option» -H 'Authorization: Basic «password.basic»' https://«ip.proxy»/agents
configure-nvidia.sh[2177]: + curl https://sqs:«password.url-encoded»@10.20.30.41/queue
configure-nvidia.sh[2177]: + git clone https://oauth2:«token.github»@git.«host.domain».lan/infra/gpu.git
configure-nvidia.sh[2177]: + pip install git+https://bot:«password.git»@10.20.30.41/wheel.git
configure-nvidia.sh[2177]: + docker login -u '$oauthtoken' -p «token.nvapi» nvcr.io
configure-nvidia.sh[2177]: + echo '{"auths":{"nvcr.io":{"auth":"«token.ngc»"}}}'
configure-nvidia.sh[2177]: + notify --password «password.argument» --secret=«password.argument-equals»
configure-nvidia.sh[2177]: + mysql -h 10.20.30.41 -p«password.short-option» nodes
configure-nvidia.sh[2177]: + ipmitool -I lanplus -H 10.20.30.42 -U ADMIN -P «password.ipmi» sdr
configure-nvidia.sh[2177]: + kubeadm join 10.20.30.41:6443 --token «token.kubeadm»
configure-nvidia.sh[2177]: + redis-cli -u redis://:«password.redis»@10.20.30.43:6379/0
configure-nvidia.sh[2177]: AWS_ACCESS_KEY_ID=«token.aws-id» AWS_SECRET_ACCESS_KEY=«token.aws-secret» AWS_SESSION_TOKEN=«token.aws-session»
configure-nvidia.sh[2177]: remote: invalid token «token.gitlab», tried «token.github-fine»
configure-nvidia.sh[2177]: slack: xoxb rejected: «token.slack»; hook https://hooks.slack.com/services/«token.slack-hook»
configure-nvidia.sh[2177]: cookie: session=«token.jwt»
configure-nvidia.sh[2177]: login: invalid token «token.hf»; «token.openai»; «token.gcp»; «token.vault»
configure-nvidia.sh[2177]: WANDB_API_KEY=«token.wandb» AZURE_STORAGE_KEY=«token.azure» NVIDIA_API_KEY=«token.in-nvidia-variable»
configure-nvidia.sh[2177]: db_password: «password.yaml»
configure-nvidia.sh[2177]: {"private_key":"-----BEGIN PRIVATE KEY-----\\n«key.pem-in-json»\\n-----END PRIVATE KEY-----\\n"}
configure-nvidia.sh[2177]: PrivateKey = «key.wireguard»
configure-nvidia.sh[2177]: ssh-ed25519 «key.ssh-public» «user.key-comment»@«host.own»
configure-nvidia.sh[2177]: -----BEGIN RSA PRIVATE KEY-----
configure-nvidia.sh[2177]: «key.pem-line»
configure-nvidia.sh[2177]: -----END RSA PRIVATE KEY-----
sudo[1]: «user.sudo» : TTY=pts/0 ; PWD=/scratch ; USER=root ; COMMAND=/usr/bin/docker run --gpus all «image.hub»:latest
sshd[2]: Accepted publickey for «user.sshd» from «ip.sshd» port 51512 ssh2: ED25519 SHA256:«key.ssh-fingerprint»
sshd[3]: Failed password for invalid user «user.failed» from «ip.v6» port 4022 ssh2
sshd[3]: pam_unix(sshd:session): session opened for user «user.pam»(uid=1004) by (uid=0)
systemd-logind[4]: New session 43 of user «user.logind».
CRON[5]: («user.cron») CMD (/opt/bin/sync.sh)
useradd[6]: new user: name=«user.new», UID=1010, GID=1010, home=/home/«user.new», shell=/bin/bash, from=none
sssd[7]: ldap_uri = ldaps://«host.ldap».ad.«domain.ad».lan, base ou=GPU,dc=ad,dc=«domain.ad»,dc=lan, realm AD.«domain.realm».LAN
winbindd[8]: user «domain.netbios»\\«user.ad» mapped; krb5: «user.ad»@AD.«domain.realm».LAN
nvidia-gridd[9]: License acquired successfully. (Info: «host.vgpu-license», NVIDIA RTX Virtual Workstation)
nvidia-gridd[9]: LM_LICENSE_FILE=27000@«host.license»
systemd-timesyncd[10]: Initial synchronization to time server «ip.ntp»:123 («host.ntp».«host.domain».lan).
slurmd[11]: error: Unable to contact slurm controller («host.slurm»): Connection refused; SLURM_JOB_USER=«user.slurm»
postfix/smtpd[12]: connect from «host.ec2».compute-1.amazonaws.com[«ip.v6-full»]
rasdaemon[13]: DIMM_P1_A1 Serial Number: «serial.dimm»
smartd[14]: Device: /dev/sda, ST20000NM007D, S/N:«serial.disk-smart», WWN:«serial.wwn-smart», FW:SN03, 20.0 TB
containerd[15]: PullImage "harbor.«image.registry».io/«image.project»/llm-trainer:«image.tag»@sha256:«image.digest»" failed
containerd[15]: RunPodSandbox for &PodSandboxMetadata{Name:«pod.name»,Uid:3f2c,Namespace:«pod.namespace»,Attempt:0,}
kubelet[16]: "SyncLoop" pod="«pod.namespace»/«pod.name»" path="/var/log/pods/«pod.namespace»_«pod.name»_3f2c/«pod.container»/0.log"
network[20]: Device eth1 has MAC address «mac.upper», instead of configured address «mac.dash». Ignoring.
wpa_supplicant[21]: wlp2s0: Trying to associate with «mac.colon» (SSID='«wifi.ssid»' freq=5180 MHz)
dockerd[17]: container k8s_«pod.container»_«pod.name»_«pod.namespace»_3f2c_0 died
nvidia-smi[18]: 169.254.169.254 answered; 127.0.0.1:5000; ::1; fd12:3456:789a::17; firmware 28.39.1002, VBIOS 96.00.5E.00.01
sh[19]: NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility CUDA_VISIBLE_DEVICES=0,1,2,3
configure-nvidia.sh[2177]: -----BEGIN EC PRIVATE KEY-----
configure-nvidia.sh[2177]: «key.pem-cut»"""

DAEMON_JSON = """{
    "exec-opts": ["native.cgroupdriver=systemd"],
    "log-driver": "splunk",
    "log-opts": {"splunk-token": "«token.splunk»", "splunk-url": "https://«host.splunk»:8088", "password": "«password.daemon-json»"},
    "labels": ["host=«host.own»", "owner=«email.comment»"], "passphrase": "«password.json-escaped»",
    "proxies": {"http-proxy": "http://«user.env»:«password.proxy»@«ip.proxy»:3128", "no-proxy": "*.«host.domain».lan"},
    "registry-mirrors": ["https://«host.mirror»:5000/«image.mirror-path»"],
    "insecure-registries": ["harbor.«image.registry».io", "10.20.30.40:5000"],
    "dns": ["«ip.dns»"], "dns-search": ["hpc.«host.domain».lan"], "hosts": ["tcp://[«ip.v6»]:2376"],
    "data-root": "/home/«user.home»/docker", "userns-remap": "«user.remap»", "bip": "172.16.5.9/24",
    "runtimes": {"nvidia": {"args": [], "path": "/home/«user.home»/bin/nvidia-container-runtime"}}
}
"""

PLANTS = {
    "root/proc/sys/kernel/hostname": "«host.own».hpc.«host.domain».lan\n",
    "root/proc/cmdline": f"{CMDLINE}\n",
    "root/etc/docker/daemon.json": DAEMON_JSON,
    "root/etc/os-release": 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nID=ubuntu\nBUG_REPORT_URL="mailto:«email.os-release»"\n',
    "root/etc/modprobe.d/«host.own».conf": "# asked for by «email.comment» on «host.own»\n"
    "options nvidia NVreg_DeviceFileMode=0666 NVreg_TemporaryFilePath=/home/«user.home»/tmp\n"
    "install nvidia /sbin/modprobe -i nvidia && /opt/notify --password «password.argument» http://«host.proxy»/loaded\n",
    "root/etc/udev/rules.d/60-nvidia.rules": 'SUBSYSTEM=="net", ATTR{address}=="«mac.colon»", NAME="eth0"\n'
    'ENV{ID_SERIAL_SHORT}=="«serial.disk-by-id»", RUN+="/opt/notify --password «password.argument» /home/«user.home»/seen"\n',
    "root/var/log/dpkg.log": "2026-11-29 06:12:33 upgrade linux-generic:amd64 5.15.0.136.132 5.15.0.139.135\n",
    "root/var/log/zypp/history": "2026-11-29 06:12:33|command|root@«host.own»|'zypper' 'in' 'nvidia-open'|\n",
    "root/var/log/pacman.log": "[2026-11-29T06:12:33+0000] [PACMAN] Running 'pacman -U /home/«user.home»/nvidia-dkms.pkg.tar.zst'\n",
    "root/var/log/nvidia-installer.log": "creation time: Tue Nov 24 09:12:44 2026\nnvidia-installer command line:\n    ./nvidia-installer\n"
    "    --silent\n    --kernel-source-path=/home/«user.home»/linux\n    --dkms-cert-password=«password.argument-equals»\n",
    "root/sys/module/firmware_class/parameters/path": "/home/«user.home»/firmware\n",
    "root/var/log/apt/history.log": "Start-Date: 2026-11-29  11:04:12\nCommandline: apt-get install nvidia-dkms-550\n"
    "Requested-By: «user.apt» (1001)\n",
    "root/var/lib/dkms/nvidia/550.163.01/build/make.log": "DKMS make.log for nvidia-550.163.01 on «host.own»\n"
    "make: Entering directory '/home/«user.make»/src/linux'\nexport MYSQL_PWD=«password.environment»\n/bin/sh: error: no rule\n",
    "root/sys/devices/virtual/dmi/id/board_serial": "«serial.dmi-board»\n",
    "root/sys/devices/virtual/dmi/id/product_serial": "«serial.dmi-product»\n",
    "root/sys/devices/virtual/dmi/id/chassis_serial": "«serial.dmi-chassis»\n",
    "root/sys/devices/virtual/dmi/id/chassis_asset_tag": "«serial.dmi-asset»\n",
    "root/sys/devices/virtual/dmi/id/product_uuid": "«uuid.product»\n",
    "root/etc/machine-id": "«uuid.machine»\n",
    "root/etc/systemd/system/docker.service.d/proxy.conf": '[Service]\nEnvironment="DB_PASSWORD=«password.environment»"\n'
    "Environment=MODEL_DIR=/data/«value.environment» NVIDIA_VISIBLE_DEVICES=all\nUser=«user.home»\n",
    "root/proc/48213/environ": "USER=«user.env»\0STAGE=«value.environ-nul»\0HF_TOKEN=«token.hf»\0CUDA_VISIBLE_DEVICES=0,1,2,3\0",
    "root/proc/48213/cmdline": "python3\0train.py\0--dataset\0«value.argument»\0--lr=0.1\0",
    "root/sys/class/net/ibp43s0/address": "80:00:02:08:fe:80:00:00:00:00:00:00:«mac.infiniband»\n",
    "root/proc/48213/cgroup": "0::/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter-«user.unit».service\n",
    "kernel.log": "\n".join(f"[ 4012.{line:06}] {text}" for line, text in enumerate(KERNEL.splitlines())) + "\n",
    "journal/configure-nvidia.service.log": "".join(
        f"Nov 29 10:36:52 «host.own» {text}\n" for text in UNIT_JOURNAL.splitlines()
    ),
    "journal/nvidia-persistenced.service.log": "2026-11-29T10:36:45+0000 «host.own» systemd[1]: Stopped NVIDIA Persistence Daemon.\n",
}
"""What stands in the files of the node, and in logs that no root directory holds."""

ENTRIES: tuple[dict[str, object], ...] = (
    {"path": "/home/«user.home»/bin/nvidia-container-runtime", "type": "file", "mode": "0755"},
    {"path": "/home/«user.home»/firmware/nvidia/550.163.01/gsp_ga10x.bin", "type": "file", "size": 1},
    {"path": "/home/«user.home»/firmware/nvidia/550.163.01/gsp_tu10x.bin", "type": "file", "size": 1},
    {"path": "/etc/ssl/«host.own».pem", "type": "link", "to": "/home/«user.make»/«host.own».hpc.«host.domain».lan.pem"},
)
SMI = """GPU 00000000:18:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Serial Number                         : «serial.smi»
    GPU UUID                              : GPU-61803c11-6b95-1b34-eb4a-d48864d13bda
    GPU PDI                               : «serial.pdi»
    VBIOS Version                         : 96.00.5E.00.01
    Platform Info
        Chassis Serial Number             : «serial.chassis-of-tray»
    Processes
        Process ID                        : 48213
            Name                          : /home/«user.process»/venv/bin/python3
"""
COMMANDS: tuple[dict[str, object], ...] = (
    {"argv": ["nvidia-smi", "-q"], "exit": 0, "stdout": SMI, "stderr": ""},
    {
        "argv": ["mokutil", "--list-enrolled"],
        "exit": 0,
        "stdout": "CN=«host.own» Secure Boot Module Signature key\n",
        "stderr": "",
    },
)
HOLDER = {"pid": 48213, "comm": "python3", "nodes": ["/dev/nvidia0"], "unit": "jupyter-«user.unit».service"}
WAIVER = {"check": "toolkit.docker-runtime", "reason": "«email.waiver» knows, see «host.own»", "until": "2027-03-31"}

SURVIVORS = (
    "0000:18:00.0 0000:2a:00.0 0000:db:00.0 PCI:0000:18:00 00000000:18:00.0 GPU-61803c11-6b95-1b34-eb4a-d48864d13bda "
    "550.163.01 12.550.163.01 5.15.0-139-generic 5.15.0.139.135 11.4.0-1ubuntu1~22.04 28.39.1002 96.00.5E.00.01 "
    "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility CUDA_VISIBLE_DEVICES=0,1,2,3 "
    "10.20.30.41 172.16.5.9 192.168.122.1 169.254.169.254 127.0.0.1 fd12:3456:789a::17 10.20.30.40:5000 "
    "NVreg_DeviceFileMode=0666 nvidia.NVreg_EnableGpuFirmware=1 module_blacklist=nouveau iommu=pt pci=realloc=off "
    "nvidia-container-runtime native.cgroupdriver=systemd pid=48213 name=python3 NVreg_TemporaryFilePath= DST=10.20.30.41"
).split()
"""Words of the planted node that a diagnosis needs, or that tell nothing of anybody."""


def from_fixture(name: str) -> dict[str, bytes]:
    """The members of a recorded node."""
    place = fixtures() / name
    found = {str(file.relative_to(place)): file.read_bytes() for file in sorted(place.rglob("*")) if file.is_file()}
    return {name: content for name, content in found.items() if name not in ("about.md", "expected.json")}


def planted(name: str = "h100x8") -> dict[str, bytes]:
    """A recorded node with every secret in it; what a log said before it still says."""
    members = from_fixture(name)
    for plant, text in PLANTS.items():
        said = members.get(plant, b"") if plant.endswith((".log", "cmdline")) else b""
        joint = b"" if not said else b" " if plant.endswith("cmdline") else b"\n"
        members[planted_text(plant)] = said.removesuffix(b"\n") + joint + planted_text(text).encode()
    for member, lines in (("entries.jsonl", ENTRIES), ("commands.jsonl", COMMANDS)):
        added = "".join(json.dumps(_filled(line)) + "\n" for line in lines)
        members[member] = members.get(member, b"") + added.encode()
    holders = {"schema": 1, "via": "/proc", "data": {"holders": [_filled(HOLDER)], "hidden": 0}}
    members["answers/holders.json"] = json.dumps(
        {**holders, "error": None, "stopped_at": None, "worker": None}
    ).encode()
    manifest = json.loads(members["snapshot.json"])
    manifest["config"] = {**manifest["config"], "waive": [_filled(WAIVER)]}
    manifest["hostname"] = SECRETS["host.pod"]
    manifest["complete"] = [*manifest["complete"], planted_text("/home/«user.home»/firmware")]
    return {**members, "snapshot.json": json.dumps(manifest).encode()}


def _filled(value: object) -> object:
    match value:
        case str():
            return planted_text(value)
        case dict():
            return {key: _filled(item) for key, item in value.items()}
        case list() | tuple():
            return [_filled(item) for item in value]
        case _:
            return value


# Looking for secrets ------------------------------------------------------------------------------------------------

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{12,}")
_HEXADECIMAL = re.compile(r"(?:[0-9a-fA-F]{2}){8,}")


def readings(members: Mapping[str, bytes]) -> str:
    """All that members say, and what they say when read as URL, as JSON or systemd escapes, as base64 and as hexadecimal; in lower case."""
    said = "\n".join(f"{name}\n{content.decode('utf-8', 'backslashreplace')}" for name, content in members.items())
    unescaped = _unescaped(said)
    found = [said, unquote(said), unescaped, _unescaped(unescaped), said.replace("--", "-")]
    found += [bytes.fromhex(run).decode("latin-1").replace("\0", " ") for run in _HEXADECIMAL.findall(said)]
    found += [text for run in _BASE64.findall(said) for text in _from_base64(run)]
    return "\n".join(found).lower()


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda seen: chr(int(seen[1] or seen[2], 16)) if seen[1] or seen[2] else seen[3], text)


def _from_base64(run: str) -> Iterator[str]:
    try:
        yield base64.b64decode(run.replace("-", "+").replace("_", "/") + "=" * (-len(run) % 4)).decode("latin-1")
    except binascii.Error:
        pass


@cache
def before_and_after(base: str = "h100x8") -> tuple[str, str, Redacted]:
    """The readings of a planted node as it is and redacted."""
    members = planted(base)
    redacted = redact(members, SALT)
    return readings(members), readings(redacted.members), redacted


def around(secret: str, text: str) -> str:
    """The words around a secret, for whoever has to mend it."""
    place = text.find(secret.lower())
    return "nowhere" if place < 0 else " ".join(text[max(0, place - 80) : place + len(secret) + 40].split())


def leaks(members: Mapping[str, bytes], names: Iterable[str] = tuple(SECRETS)) -> dict[str, str]:
    """The secrets that members hold, with the words around them."""
    text = readings(members)
    return {name: around(SECRETS[name], text) for name in names if SECRETS[name].lower() in text}


def assert_safe(members: Mapping[str, bytes], names: Iterable[str] = tuple(SECRETS)) -> None:
    """No secret is in the members."""
    found = leaks(members, names)
    assert not found, "\n".join(f"{name}: {words}" for name, words in found.items())


# Nothing private is left --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_is_left(name: str) -> None:
    before, after, _ = before_and_after()
    planted_there = SECRETS[name].lower() in before
    assert planted_there
    assert around(SECRETS[name], after) == "nowhere"


def test_the_search_finds_what_is_not_redacted() -> None:
    assert len(SECRETS) >= 40 and len({secret.lower() for secret in SECRETS.values()}) == len(SECRETS)
    assert list(leaks(planted())) == list(SECRETS)


BREAKS: dict[str, Callable[[str], str]] = {
    "trailing comma": lambda text: text.replace("}}\n}", "}},\n}"),
    "comment": lambda text: text.replace("{\n", "{\n    // as asked\n", 1),
    "cut off": lambda text: text[: text.rindex('"runtimes"')],
    "line break in a string": lambda text: text.replace('"splunk"', '"splu\nnk"'),
    "single quotes": lambda text: text.replace('"', "'"),
}


@pytest.mark.parametrize("kind", BREAKS)
def test_a_file_that_does_not_parse_leaks_no_more(kind: str, tmp_path: Path) -> None:
    members, name = planted(), "root/etc/docker/daemon.json"
    broken = BREAKS[kind](members[name].decode()).encode()
    assert broken != members[name]
    redacted = redact({**members, name: broken}, SALT)
    assert_safe({name: redacted.members[name]})
    assert misjudged({**members, name: broken}, redacted.members, tmp_path) == {}


ALONE = (
    "root/etc/docker/daemon.json",
    "root/proc/cmdline",
    "root/proc/48213/environ",
    "kernel.log",
    "journal/configure-nvidia.service.log",
    "root/var/lib/dkms/nvidia/550.163.01/build/make.log",
    "root/etc/systemd/system/docker.service.d/proxy.conf",
)


@pytest.mark.parametrize("name", ALONE)
def test_a_member_is_safe_without_the_others_which_tell_more_names(name: str) -> None:
    members = planted()
    redacted = redact({"snapshot.json": from_fixture("h100x8")["snapshot.json"], name: members[name]}, SALT)
    # That a word is the node's own name, only the other members can tell.
    assert_safe(redacted.members, [secret for secret in SECRETS if secret != "host.own"])


def test_serials_in_pci_configuration_space_are_gone() -> None:
    """PCI Express Base Specification, Device Serial Number: an EUI-64, of which network adapters make their MACs."""
    members = from_fixture("acs-redirect-on-switch")
    redacted = redact(members, SALT).members
    serials = {name: serial for name in members if name.endswith("/config") and (serial := _pci_serial(members[name]))}
    assert serials
    assert [name for name, serial in serials.items() if _pci_serial(redacted[name]) == serial] == []


def _pci_serial(content: bytes) -> bytes | None:
    config = config_bytes(content.decode("utf-8", "backslashreplace"))
    place = extended_capability(config, 3) if config is not None and len(config) == 4096 else None
    return config[place + 4 : place + 12] if config is not None and place is not None else None


# What a diagnosis needs is left -------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", SURVIVORS)
def test_what_a_diagnosis_needs_is_left(word: str) -> None:
    before, after, _ = before_and_after()
    places = around(word, before), around(word, after)
    assert "nowhere" not in places


def test_what_a_process_says_of_gpus_and_of_its_place_is_left() -> None:
    members = before_and_after()[2].members
    assert b"\0CUDA_VISIBLE_DEVICES=0,1,2,3\0" in members["root/proc/48213/environ"]
    assert b"\0--lr=" in members["root/proc/48213/cmdline"]
    assert members["root/proc/48213/cgroup"].startswith(
        b"0::/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter-"
    )


@pytest.mark.parametrize(
    "form",
    [
        "node-name: {}\ntoken: x\n",
        'node-name: "{}"\n',
        "kubelet-arg:\n- hostname-override={}\n",
        'kubelet-arg: ["--hostname-override={}"]\n',
        "--node-name {} --v=2\n",
    ],
)
def test_a_kubelets_own_name_of_its_node_is_gone(form: str) -> None:
    place = "root/etc/rancher/k3s/config.yaml.d/10-node.yaml"
    members = from_fixture("h100x8") | {place: form.format("rack7-palantir").encode()}
    after = redact(members, SALT).members[place].decode()
    before, behind = form.split("{}")
    assert "palantir" not in after and after.startswith(before) and after.endswith(behind.rpartition("\n")[1])


def test_a_key_that_is_cut_off_hides_nothing_else(tmp_path: Path) -> None:
    members = from_fixture("gpu-lost-and-daemon-json-broken")
    begun = f"[    0.000000] -----BEGIN EC PRIVATE KEY-----\n[    0.000000] {SECRETS['key.pem-cut']}\n"
    members["kernel.log"] = begun.encode() + members["kernel.log"]
    redacted = redact(members, SALT).members
    assert_safe(redacted)
    assert altered(members, redacted) == []
    assert misjudged(members, redacted, tmp_path) == {}


_IDENTITY = re.compile(
    rb"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|(?:GPU|MIG)-[0-9a-f-]{36}|\bNVreg_\w+(?:=\d+)?|(?<![:\w.-])\d+\.\d+\.\d+-[\w.+~-]+"
    rb"|\b(?:NVIDIA|CUDA)_[A-Z_]+=[^\s\"\\\0]+|Xid \(PCI:\S+ \d+|\b(?:10|192\.168|127)\.\d+\.\d+\.\d+\b|\b\d{3}\.\d{2,3}(?:\.\d\d)?\b"
    rb'|"m(?:ajor|inor)": \d+|^ *\d+ nvidia[\w-]*$',
    re.MULTILINE | re.IGNORECASE,
)


_PLUGINS_ANSWER = re.compile(rb"AllocResp\\?\": \{.*?cdi_devices\\?\": \[.*?\]\}")
"""Of the kubelet's checkpoint, which is kept in parsed form: what stands there is base64 in the raw one."""


def altered(raw: Mapping[str, bytes], redacted: Mapping[str, bytes]) -> list[tuple[bytes, bytes]]:
    """What tells GPUs, devices, versions, variables and options apart where it differs; members stand in their order."""
    pairs = zip(raw.values(), redacted.values(), strict=True)
    said = [(_IDENTITY.findall(before), _IDENTITY.findall(_PLUGINS_ANSWER.sub(b"", after))) for before, after in pairs]
    return [words for pair in said for words in zip_longest(*pair, fillvalue=b"") if words[0] != words[1]][:5]


@pytest.mark.parametrize("name", thinned(NODES))
def test_a_redacted_node_is_diagnosed_as_the_raw_one(name: str, tmp_path: Path) -> None:
    members = from_fixture(name)
    redacted = redact(members, SALT)
    assert altered(members, redacted.members) == []
    assert misjudged(members, redacted.members, tmp_path) == {}


BASES = [
    *("h100x8", "options-applied", "options-not-applied", "dkms-build-failed-running-kernel", "persistenced-failed"),
    *(
        "udev-mknod-race",
        "gpu-missing-with-last-xid",
        "module-blacklisted-on-cmdline",
        "dstate-in-nfs",
        "laptop-optimus",
    ),
    *("gsp-firmware-wrong-version", "two-firmware-versions-healthy", "rminit-failed-gsp-firmware-missing"),
    *("upgrade-waits-and-module-in-use", "no-module-after-kernel-upgrade-logged", "aws-boot-script-failed-at-imds"),
]


@pytest.mark.parametrize("base", BASES)
def test_a_planted_node_is_diagnosed_as_the_raw_one_and_so_when_redacted_twice(base: str, tmp_path: Path) -> None:
    members = planted(base)
    once = redact(members, SALT).members
    assert misjudged(members, once, tmp_path) == {}
    for salt in (SALT, b"another"):
        assert misjudged(once, redact(once, salt).members, tmp_path) == {}


COMMON_WORDS = (
    "nvidia gpu vm n1 docker proc dev root a100 error localhost kernel 18 pci 0000 nvidia0 ubuntu linux".split()
)


@pytest.mark.parametrize("word", COMMON_WORDS)
def test_a_host_whose_name_is_a_common_word_hides_nothing_else(word: str, tmp_path: Path) -> None:
    members = from_fixture("gpu-lost-and-daemon-json-broken")
    members["root/proc/sys/kernel/hostname"] = f"{word}\n".encode()
    members["journal/nvidia-persistenced.service.log"] = f"Nov 29 10:36:45 {word} systemd[1]: Started X.\n".encode()
    redacted = redact(members, SALT)
    assert altered(members, redacted.members) == []
    assert misjudged(members, redacted.members, tmp_path) == {}


@pytest.mark.parametrize("word", COMMON_WORDS)
def test_a_user_whose_name_is_a_common_word_hides_nothing_else(word: str, tmp_path: Path) -> None:
    """Jetsons have a user `nvidia`, clouds a user `ubuntu`."""
    members = from_fixture("gpu-lost-and-daemon-json-broken")
    members["kernel.log"] += (
        f"[ 4013.000001] sshd[4]: Accepted publickey for {word} from 10.0.0.1 port 1 ssh2\n".encode()
    )
    members["root/etc/modprobe.d/x.conf"] = f"options nvidia NVreg_TemporaryFilePath=/home/{word}/tmp\n".encode()
    redacted = redact(members, SALT)
    assert altered(members, redacted.members) == []
    assert misjudged(members, redacted.members, tmp_path) == {}


def misjudged(raw: Mapping[str, bytes], redacted: Mapping[str, bytes], place: Path) -> dict[str, tuple[object, object]]:
    """What is found in the one and not in the other."""
    number = len(list(place.iterdir()))
    before, after = diagnosis(raw, place / f"raw-{number}"), diagnosis(redacted, place / f"redacted-{number}")
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return {key: (before.get(key), after.get(key)) for key in keys}


def diagnosis(members: Mapping[str, bytes], place: Path) -> dict[str, object]:
    """What a snapshot with these members is found to have."""
    write_snapshot(place, members)
    return diagnosed(run_node(open_snapshot(place)))


_POD = re.compile(r"(?<=pod:)[^#\s]+")


def _nameless(identity: str) -> str:
    """An id without the name of a pod: that is what redaction replaces."""
    return _POD.sub("*", identity)


def diagnosed(report: Report) -> dict[str, object]:
    """The part of a report that redaction must not change."""
    found: dict[str, object] = {result.check: (result.status, result.why) for result in report.results}
    of_pods: list[str] = []
    for result in report.results:
        for finding in result.findings:
            told = (
                _nameless(finding.subject.id),
                finding.status,
                finding.why,
                _nameless(finding.cause),
                finding.breaks,
                finding.waived is None,
            )
            whole = (*told, tuple(_nameless(cause) for cause in finding.caused_by))
            if _POD.search(finding.id):
                of_pods.append(f"{_nameless(finding.id)} {whole}")
            else:
                found[finding.id] = whole
    found["of pods"] = sorted(of_pods)
    causes = [(cause.check, tuple(_nameless(one) for one in cause.findings)) for cause in report.root_causes]
    return {**found, "verdict": report.verdict, "exit code": report.exit_code, "root causes": causes}


# Equal stays equal --------------------------------------------------------------------------------------------------

JOINS = {
    "address": (
        "Connection from {} port 51512",
        "[UFW BLOCK] SRC={}",
        "45.76.200.115",
        "45.76.200.116",
    ),
    "address 6": (
        "Connection from {} port 51512",
        "curl https://[{}]:8443/v1",
        "2a0e:97c0:5a1::42",
        "2a0e:97c0:5a1::43",
    ),
    "mac": (
        "igb 0000:04:00.0: eth0: {}",
        "DHCPACK of 10.20.30.41 to {} via eth0",
        "a0:88:c2:3c:1d:5e",
        "a0:88:c2:3c:1d:5f",
    ),
    "user at an end": ("Mounting /home/{}...", "cp /home/{}/x /tmp", "eowynkk", "samwise4"),
    "user": ("Accepted publickey for {} from 10.20.30.41 port 1 ssh2", "cp /home/{}/x /tmp", "eowynkk", "samwise4"),
    "host": (
        "curl https://{}/v1",
        "lookup {} on 10.0.0.1:53: no such host",
        "vault.rohan-labs.lan",
        "git.rohan-labs.lan",
    ),
    "e-mail": ("mailto:{}", "From: <{}>", "a.b@oldforest-hpc.org", "c.d@oldforest-hpc.org"),
    "token": ("Authorization: Bearer {}", "export HF_TOKEN={}", SECRETS["token.hf"], SECRETS["token.github"]),
    "serial": ("NVRM: GPU Board Serial Number: {}", "GPU serial number is {}.", "1654922099001", "1654922099002"),
    "password": ("notify --password {} 10.20.30.41", "GET http://svc:{}@10.20.30.41/x", "Orcrist-31k", "Sting0x9ff"),
}
"""Two contexts of a secret, the secret, and another one."""


@pytest.mark.parametrize("kind", JOINS)
def test_equal_stays_equal_and_different_different(kind: str) -> None:
    here, there, secret, other = JOINS[kind]
    members = {
        "snapshot.json": from_fixture("h100x8")["snapshot.json"],
        "kernel.log": f"[ 1.000001] {here.format(secret)}\n[ 1.000002] {here.format(other)}\n".encode(),
        "journal/x.service.log": f"Nov 29 10:36:45 n1 x[1]: {there.format(secret)}\n".encode(),
    }
    seen = []
    for salt in (SALT, SALT, b"another"):
        redacted = redact(members, salt).members
        two, one = _replacements(here, redacted["kernel.log"]), _replacements(there, redacted["journal/x.service.log"])
        assert len(two) == 2 and one == two[:1], redacted
        assert len({*two, secret, other}) == 4
        seen.append(two)
    assert seen[0] == seen[1]
    assert seen[0][0] != seen[2][0] and seen[0][1] != seen[2][1]


def _replacements(template: str, content: bytes) -> list[str]:
    """What stands in a template's gap now, line by line."""
    before, after = (re.escape(part) for part in template.split("{}"))
    return re.findall(rf"{before}(\S+?){after}$", content.decode(), re.MULTILINE)


def test_a_serial_is_the_same_in_the_log_and_in_the_answers() -> None:
    members, serial = from_fixture("h100x8"), SECRETS["serial.nvml"]
    members["kernel.log"] += f"[ 4013.000001] NVRM: GPU Board Serial Number: {serial}\n".encode()
    redacted = redact(members, SALT)
    for name in ("kernel.log", "answers/nvml.json"):
        assert redacted.members[name].count(redacted.replaced[serial].encode()) == 1


def test_no_two_originals_share_a_replacement() -> None:
    replaced = before_and_after()[2].replaced
    assert len({new.lower() for new in replaced.values()}) == len({original.lower() for original in replaced})
    assert not replaced.keys() & set(replaced.values())


# On the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A live root with the secrets in its files, alone on this machine; it lacks a node, so that udev's rules are looked for."""
    monkeypatch.setattr(socket, "gethostname", lambda: SECRETS["host.pod"])
    place = make_root("h100x8", tmp_path / "root")
    (place / "dev/nvidia3").unlink()
    files = {name.removeprefix("root/"): text for name, text in PLANTS.items() if name.startswith("root/")}
    files |= {str(entry["path"])[1:]: "x" for entry in ENTRIES if entry["type"] == "file"}
    files["etc/gpudoctor/redaction.salt"] = SALT.decode()
    files["etc/gpudoctor/config.toml"] = f'[[waive]]\ncheck = "{WAIVER["check"]}"\nreason = "{WAIVER["reason"]}"\n'
    for name, text in files.items():
        file = place / planted_text(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(planted_text(text))
    (place / planted_text("home/«user.home»/bin/nvidia-container-runtime")).chmod(0o755)
    with open(Path(tempfile.gettempdir()) / "gpudoctor-live-tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield place


def record(root: Path, name: str, *options: str) -> dict[str, bytes]:
    """The members of a new recording of a root, made on the command line."""
    place = root.parent / f"{name}.tar.gz"
    assert cli.main(["record", "-o", str(place), "--root", str(root), *options]) == 0
    with tarfile.open(place) as packed:
        files = [member for member in packed.getmembers() if member.isfile()]
        return {file.name.partition("/")[2]: content.read() for file in files if (content := packed.extractfile(file))}


def test_a_recording_of_a_live_root_holds_no_secret(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, redacted = record(root, "raw", "--raw"), record(root, "redacted")
    assert len(leaks(raw)) >= 30, "so many are in what the probes read"
    assert [json.loads(members["snapshot.json"])["redacted"] for members in (raw, redacted)] == [False, True]
    assert_safe({"said": capsys.readouterr().err.encode()})
    assert_safe(redacted)


def test_a_recording_of_a_live_root_is_diagnosed_as_the_raw_one(root: Path) -> None:
    raw, redacted = record(root, "raw", "--raw"), record(root, "redacted")
    assert misjudged(raw, redacted, root.parent) == {}


def test_the_map_tells_every_original_to_its_owner_only(root: Path) -> None:
    raw, file = record(root, "raw", "--raw"), root.parent / "map"
    redacted = record(root, "redacted", "--map", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    replaced = json.loads(file.read_text())
    originals, left = readings({"originals": "\n".join(replaced).encode()}), leaks(redacted)
    gone = [name for name in leaks(raw) if name not in left]
    assert [name for name in gone if SECRETS[name].lower() not in originals] == []
    text = readings(redacted)
    assert [original for original, new in replaced.items() if new.lower() not in text] == []


def test_the_salt_of_the_site_joins_recordings_and_is_not_in_them(root: Path) -> None:
    maps = [root.parent / f"map-{number}" for number in range(4)]
    archives = [record(root, f"{number}", "--map", str(maps[number])) for number in (0, 1)]
    for archive in archives:
        text = readings(archive)
        assert not [form for form in (SALT.decode(), SALT.hex(), SALT.decode()[:12]) if form in text]
    (root / "etc/gpudoctor/redaction.salt").unlink()
    archives += [record(root, f"{number}", "--map", str(maps[number])) for number in (2, 3)]
    replaced = [json.loads(file.read_text()) for file in maps]
    address = SECRETS["ip.proxy"]
    assert replaced[0][address] == replaced[1][address]
    assert len({found[address] for found in replaced}) == 3, "without a site's salt each recording has one of its own"


def test_a_map_is_not_written_over(root: Path) -> None:
    (root.parent / "map").write_text("mine")
    place = root.parent / "n.tar"
    assert cli.main(["record", "-o", str(place), "--root", str(root), "--map", str(root.parent / "map")]) == 3
    assert (root.parent / "map").read_text() == "mine" and not place.exists()


def test_serials_in_nvidia_smis_xml_are_replaced() -> None:
    """Serial and chassis' serial, in a command's output."""
    said = "<gpu><serial>1650522001234</serial><chassis_serial_number>1821234567890</chassis_serial_number></gpu>"
    line = {"argv": ["nvidia-smi", "-q", "-x"], "exit": 0, "stdout": said, "stderr": "", "seconds": 0.1}
    manifest = {"format": 1, "recorded_at": "2026-11-29T12:00:00Z", "hostname": "n1", "uid": 0, "complete": []}
    members = {"snapshot.json": json.dumps(manifest).encode(), "commands.jsonl": json.dumps(line).encode() + b"\n"}
    text = redact(members, b"x" * 32).members["commands.jsonl"].decode()
    assert "1650522001234" not in text and "1821234567890" not in text and "<serial>" in text
