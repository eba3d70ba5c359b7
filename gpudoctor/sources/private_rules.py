"""Where texts of a node tell secrets, and name machines, people, workloads and parts: one rule for each form of telling.

Every expression is anchored on words that are rare; `needs` are those words, in lower case: where none of them stands, a rule is not
tried. Repetitions are bounded, so that no text makes one slow.
"""

import re

from msgspec import Struct


class Rule(Struct, frozen=True):
    """A form of telling. The groups of `form` are private, each of the kind at its place."""

    needs: tuple[str, ...]
    form: "re.Pattern[str]"
    kinds: tuple[str, ...]
    learned: bool = False
    """Whether what it finds names somebody wherever it stands."""
    in_paths: bool = False


SHORT = 400
"""A text of as many characters is often one of many alike: a recording says the same of each GPU, and of each process."""
_MOST_REMEMBERED = 20_000


class Rules:
    """Rules in their order, and which of them the words of a text call for."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules
        self._remembered: dict[str, tuple[int, ...]] = {}

    def called_for(self, lower: str) -> tuple[int, ...]:
        """The places of the rules of which a word stands in a text in lower case."""
        known = self._remembered.get(lower)
        if known is None:
            known = tuple(place for place, rule in enumerate(self.rules) if any(need in lower for need in rule.needs))
            if len(lower) <= SHORT and len(self._remembered) < _MOST_REMEMBERED:
                self._remembered[lower] = known
        return known


def lines_of(rule: Rule, text: str, lower: str) -> list[tuple[int, int]]:
    """Where the lines of a text begin and end in which a rule's words stand; `lower` is the text in lower case."""
    # Few letters are longer in lower case.
    if len(lower) != len(text):
        return [(0, len(text))] if any(need in lower for need in rule.needs) else []
    lines: set[tuple[int, int]] = set()
    for need in rule.needs:
        place = lower.find(need)
        while place >= 0:
            end = lower.find("\n", place)
            end = len(lower) if end < 0 else end
            lines.add((lower.rfind("\n", 0, place) + 1, end))
            place = lower.find(need, end)
    return sorted(lines) if len(lines) > 1 else list(lines)


HOST = r"([A-Za-z0-9](?:[\w.-]{0,252}\w)?)"
USER = r"(\w(?:[\w.-]{0,62}[\w$-])?)"
LABEL = r"([A-Za-z0-9](?:[\w-]{0,62}\w)?)"
UUID = r"([0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})"


def _rule(needs: str, form: str, kinds: str, *, learned: bool = False, in_paths: bool = False) -> Rule:
    return Rule(tuple(needs.split()), re.compile(form, re.MULTILINE), tuple(kinds.split()), learned, in_paths)


TOKENS = (
    _rule("akia asia", r"\b((?:AKIA|ASIA)[A-Z0-9]{16})\b", "secret"),
    _rule("eyj", r"\b(eyJ[\w-]{8,}\.[\w-]+\.[\w-]*)", "secret"),
    _rule(
        "gh github_pat glpat xox sk- nvapi hf_ dop_v1 npm_ pypi- dckr_",
        r"\b((?:gh[pousr]|github_pat|glpat|xox[abeprs]|sk|nvapi|hf|dop_v1|npm|pypi|dckr_pat)[-_][\w-]{16,})",
        "secret",
    ),
    _rule("aiza", r"\b(AIza[\w-]{30,})", "secret"),
    _rule("hvs. hvb. hvr.", r"\b(hv[sbr]\.[\w-]{16,})", "secret"),
    _rule("hooks.slack.com", r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/-]+)", "secret"),
    _rule("sha256: md5:", r"\b(?:SHA256:([A-Za-z0-9+/]{43})=?|MD5:((?:[0-9a-f]{2}:){15}[0-9a-f]{2}))", "secret secret"),
    _rule(
        "aaaa",
        r"(?:ssh-\w+|ecdsa-sha2-\S{1,32}|sk-\S{1,48}) (AAAA[A-Za-z0-9+/=]{20,})(?: ([\w.-]{1,64})@([\w.-]{1,255}))?",
        "secret user host",
        learned=True,
    ),
)

SECRET_NAME = (
    r"[\w.-]{0,64}(?:token|secret|passw(?:or)?d|passphrase|_pass|[_-]pwd|(?:api|access|private|storage|account|encryption|license|"
    r"client|shared|preshared|master|ssh)[_-]?key|credential|authorization|cookie|(?<![\w])auth(?![\w.-])|[_-]auth(?![\w.-])|"
    r"(?<![\w])psk(?![\w]))[\w.-]{0,64}"
)
SECRET_WORDS = (
    "token secret passw passphrase _pass _pwd -pwd _key -key apikey accesskey privatekey storagekey accountkey sharedkey sshkey licensekey "
    "clientkey masterkey encryptionkey credential authorization cookie auth psk"
)
_QUOTE = r"(?:\\{0,4}[\"'])?"

SECRETS = (
    _rule(
        SECRET_WORDS,
        rf"(?i:(?<![\w.-]){SECRET_NAME}){_QUOTE}[ \t]{{0,8}}[:=]{{1,2}}[ \t]{{0,8}}"
        r"(?:\"((?:[^\"\\\n]|\\.){3,})\"|'((?:[^'\\\n]|\\.){3,})'|\\{1,4}[\"']([^\"'\\\n]{3,})|"
        r"(?i:(?:bearer|basic|digest) +)?(?!(?i:bearer|basic|digest) |(?:null|true|false)\b)([^\s\"',;}&\\][^\s\"',;}&]{2,}))",
        "quoted quoted secret secret",
    ),
    _rule("bearer basic", r"(?i:\b(?:bearer|basic)) +([A-Za-z0-9+/=_.~-]{8,})", "secret"),
    _rule(
        "pass secret token key",
        r"(?<![\w-])--?(?i:[\w-]{0,32}(?:password|passwd|passphrase|token|secret|api-key|access-key))[ =](?!-)[\"']?([^\s\"']{3,})",
        "secret",
    ),
    _rule("mysql mariadb", r"\b(?:mysql|mariadb)\w*\b[^\n|;]{0,400}? -p([^\s\"']{3,})", "secret"),
    _rule("ipmi redfish", r"\b(?:ipmi\w*|ipmi-\w+|redfish\w*)\b[^\n|;]{0,400}? -P ?[\"']?([^\s\"']{3,})", "secret"),
    _rule("ipmi redfish", r"\b(?:ipmi\w*|ipmi-\w+|redfish\w*)\b[^\n|;]{0,400}? -U ?[\"']?([^\s\"']{2,})", "user"),
    _rule(
        "curl", r"\bcurl\b[^\n|;]{0,400}? (?:-u ?|--(?:proxy-)?user[ =])[\"']?([^\s\"':]+):([^\s\"']+)", "user secret"
    ),
    _rule("login", r"\blogin\b[^\n|;]{0,200}? -p ?[\"']?([^\s\"']{3,})", "secret"),
    _rule("sshpass", r"\bsshpass\b[^\n|;]{0,40}? -p ?[\"']?([^\s\"']{3,})", "secret"),
    _rule("redis-cli", r"\bredis-cli\b[^\n|;]{0,400}? (?:-a|--pass) ?[\"']?([^\s\"']{3,})", "secret"),
    _rule("ldap", r"\bldap(?:search|add|modify|whoami|passwd)\b[^\n|;]{0,400}? -w ?[\"']?([^\s\"']{3,})", "secret"),
    _rule(
        "smbclient net",
        r"\b(?:smbclient|net|rpcclient)\b[^\n|;]{0,400}? -U ?[\"']?([^\s\"'%]+)%([^\s\"']+)",
        "user secret",
    ),
    # The kernel's audit: what is not plain is hexadecimal (kernel/audit.c, audit_log_untrustedstring).
    _rule("proctitle= cmd=", r"\b(?:proctitle|cmd)=(\"[^\"\n]*\"|[0-9A-F]{6,})", "value"),
)

IDENTITIES = (
    _rule(
        "serial",
        r"(?i:serial)(?i:[_ -]?(?:number|short|no\.?|num|#))?[}\"']{0,2}(?:[ \t]*(?:is|[:=]{1,2})[ \t]*|[ \t]+)[\"']?"
        r"((?=[A-Za-z-]{0,40}\d)[A-Za-z0-9][A-Za-z0-9-]{5,})(?![\w:])",
        "serial",
    ),
    # nvidia-smi -q -x: <serial>, <chassis_serial_number>.
    _rule(
        "<serial _serial",
        r"<\w{0,40}serial\w{0,40}>\s{0,8}((?=[A-Za-z-]{0,40}\d)[A-Za-z0-9][A-Za-z0-9-]{5,})",
        "serial",
    ),
    _rule("s/n ata-", r"(?:\bS/N:? ?|\bATA-\d+: [^,\n]{1,80}, ?)((?=[A-Z-]{0,40}\d)[A-Z0-9][A-Z0-9-]{5,})", "serial"),
    # dcgmi diag -j of DCGM 3.3 lists "GPU Device Serials" by number, one a line (dcgmi/Diag.cpp).
    _rule(" ".join(f'"{number}"' for number in range(16)), r"^\s*\"\d{1,2}\"\s{0,4}:\s{0,4}\"(\d{10,16})\"", "serial"),
    _rule("pdi", r"\bPDI\s{0,40}[:=]\s{0,8}(0x[0-9a-fA-F]{8,})", "serial"),
    _rule("ppin", r"\bPPIN:? ?(?:0x)?([0-9a-fA-F]{8,16})\b", "serial"),
    _rule(
        "sas_addr device_name", r"\b(?:sas_addr|device_name|sas_address)[(= ]{1,3}(?:0x)?([0-9a-fA-F]{16})", "serial"
    ),
    _rule(
        "wwn",
        r"\b(?i:wwn|wwid|wwpn|wwnn)(?: Device Id)?[:= -]{1,3}(?:0x)?([0-9a-fA-F][0-9a-fA-F -]{14,20})(?!\w)",
        "serial",
    ),
    _rule("naa. eui. 0x", r"\b(?:naa|eui)\.([0-9a-fA-F]{16,32})\b", "serial", in_paths=True),
    _rule("by-id/", r"by-id/[\w.:+-]{1,80}_([A-Za-z0-9-]{5,}?)(?=-part\d|_\d\b|[^\w-]|$)", "serial", in_paths=True),
    _rule("by-id/", r"by-id/wwn-0x([0-9a-fA-F]{16,32})", "serial", in_paths=True),
    _rule("by-label/ by-partlabel/", r"by-(?:part)?label/([\w.\\-]+)", "value", in_paths=True),
    _rule(
        "uuid luks- fsid",
        rf"(?i:(?<![A-Za-z])(?:fs_)?(?:part)?uuid[ =:\"']{{1,4}}|luks-|by-(?:part)?uuid/|fsid |filesystem (?:uuid )?){UUID}",
        "serial",
        learned=True,
        in_paths=True,
    ),
    _rule("filesystem", rf"filesystem (?:with UUID )?{UUID}", "serial", learned=True),
    _rule("sha256:", r"\bsha256:([0-9a-f]{64})\b", "serial", in_paths=True),
)

PEOPLE = (
    _rule("/home/ /users/", rf"/(?:home|Users)/{USER}", "user", learned=True, in_paths=True),
    _rule("of user", rf"[Ss]ession \S{{1,16}} of [Uu]ser {USER}", "user", learned=True),
    # Whoever tries names that do not exist must not have them looked for everywhere.
    _rule("invalid user illegal user authenticating user", rf"(?:invalid|illegal|authenticating) user {USER}", "user"),
    _rule("for ", rf"\bfor (?:user )?{USER}(?= from |\(uid=| by )", "user"),
    _rule("accepted", rf"\bAccepted [\w/-]{{1,40}} for {USER} from", "user", learned=True),
    _rule("opened for closed for", rf"session (?:opened|closed) for user {USER}", "user", learned=True),
    _rule("(uid=", rf"\bby {USER}\(uid=", "user", learned=True),
    _rule("user= logname=", rf"\b(?:USER|LOGNAME|SUDO_USER|SLURM_JOB_USER)={USER}", "user", learned=True),
    _rule("sudo su", rf"\b(?:sudo|su)(?:\[\d+\])?: +{USER} : ", "user", learned=True),
    _rule("cron", rf"(?i:\bcrond?)\[\d+\]: \({USER}\)", "user", learned=True),
    _rule(
        "acct= ruser= logname= username userns-remap run_as_user",
        rf"\b(?:acct|ruser|logname|[Uu]ser_?[Nn]ame|userns-remap|run_as_user)(?:=|[\"']?\s?:\s?)[\"']?{USER}",
        "user",
        learned=True,
    ),
    _rule("user", rf"(?<![\w.-])[Uu]ser(?:=|[\"']?\s?:\s?)[\"']?(?!\d+\b){USER}", "user"),
    _rule("user", rf"\b[Uu]ser (?:'{USER}'|\"{USER}\"|{USER}(?= mapped| logged | from |\(uid))", "user user user"),
    _rule("uid= userid=", rf"\b(?:uid=|UserId=)(?:\d+\(|(?=\D)){USER}", "user"),
    _rule("requested-by", rf"Requested-By: {USER}(?: \(|$)", "user", learned=True),
    _rule("new user new group", rf"\bnew (?:user|group): name={USER}", "user", learned=True),
    _rule("jupyter", r"\bjupyter(?:hub|lab|-notebook)?-([^\s/\"']{1,80}?)\.(?:service|scope)", "user", in_paths=True),
    _rule("home-", r"\bhome-([^\s/\"'-]{1,80})\.(?:mount|automount)", "user", learned=True, in_paths=True),
    _rule("@", r"(?<![\w.@-])([\w.-]{1,64})@([A-Z][A-Z0-9-]*(?:\.[A-Z0-9-]+)+)", "user domain"),
    _rule(
        "\\",
        r"(?<=[ \"'=(])([A-Z][A-Z0-9-]{1,14})\\{1,2}(?!x[0-9a-fA-F]{2}|[nrtbfu\"'])([A-Za-z][\w.-]*\w)",
        "domain user",
        learned=True,
    ),
    _rule(
        "\\",
        r"(?:user|account|for|by)[ :='\"]{1,3}([A-Z][A-Z0-9-]{1,14})\\{1,2}([A-Za-z][\w.-]*\w)",
        "domain user",
        learned=True,
    ),
)

MACHINES = (
    _rule(
        "server ", rf"\bserver {HOST}(?=[ ,:]{{1,3}}(?:not responding|OK\b|timed out|unreachable|has failed))", "host"
    ),
    # Slurm's lists, n[001-064]: they tell how a site calls its machines.
    _rule(
        "nodename nodehostname nodeaddr nodelist nodes",
        r"(?i:(?<![\w-])(?:\w{0,16}node(?:name|hostname|addr|list)|\w{0,8}nodes)\s{0,4}=\s{0,4})([^\s=\"'\\\[]{0,256}\[[^\s=\"'\\]{1,4000})",
        "hosts",
    ),
    _rule(
        "host nodename node_name serveraddress controlmachine addr=",
        r"(?<![\w-])(?i:r?host|host[_-]?name|node_?name|server_?address|slurmctldhost|controlmachine|addr)"
        rf"(?:[\"']\s?[:=]\s?|: ?|=)[\"']?(?!0x){HOST}(?![\w:[])",
        "host",
    ),
    # The kubelet's name of its node, in k3s' and RKE2's configuration and in arguments.
    _rule(
        "node-name hostname-override",
        rf"(?<![\w-])(?:--)?(?:node-name|hostname-override)(?:[\"']?[=:] ?|(?<=e)[ \0])[\"']?{HOST}",
        "host",
    ),
    _rule("slurm", rf"slurm\w* controller \({HOST}\)", "host", learned=True),
    _rule("(info:", rf"\(Info: {HOST}[,)]", "host", learned=True),
    _rule("@", rf"(?<![\w.])\d{{4,5}}@{HOST}", "host"),
    _rule("linux version", rf"Linux version \S{{1,99}} \({USER}@{HOST}\)", "user host"),
    _rule("nqn. iqn.", r"\b(?:nqn|iqn)\.\d{4}-\d\d\.(?!org\.nvmexpress\b)([^\s\"',;<>]+)", "value"),
    _rule("nqn.2014-08.org.nvmexpress:", r"nqn\.2014-08\.org\.nvmexpress:(?:uuid:)?([^\s\"',;<>]+)", "value"),
    # What engines quote twice has line feeds that look like it: `'legacy'\\nnvidia-container-cli: …`.
    _rule("\\\\", rf"(?:^|(?<=[\s=(\"'])|(?<=\] ))\\\\(?!nnvidia-){HOST}", "host"),
    _rule("//", rf"(?<=\s)//{HOST}(?=/\w)", "host"),
    _rule("lookup ", rf"\blookup {HOST}(?= on |:)", "host"),
    _rule("resolve host", rf"\bresolve host(?:name)?:? [\"']?{HOST}", "host"),
    _rule(" port ", rf"\b(?:from|by|with|to) {HOST} port \d", "host"),
    _rule("connect dial tcp", rf"\b(?:connect(?:ing|ed)? to|dial tcp) {HOST}(?=:\d)", "host"),
    _rule("nfs mount", r"\b(?:nfs4?|[Mm]ount\w*)\b[^\n]{0,200}?\s([A-Za-z][\w.-]{0,252}\w):/(?=[\w\s]|$)", "host"),
    _rule("hostname set to", rf"Hostname set to <{HOST}>", "host", learned=True),
    _rule("dc=", r"(?<![\w.])(?i:dc)=([\w-]{2,63})", "domain"),
    _rule(
        "realm workgroup",
        r"(?i:\b(?:default_)?realm|\bworkgroup)(?: = | ?[:=] ?| )\"?([A-Za-z][\w.-]*\w)",
        "domain",
        learned=True,
    ),
    _rule("domain=", r"(?<![\w.-])(?i:domain)=\"?([A-Za-z][\w.-]*\w)", "domain", learned=True),
    _rule(
        "ssid",
        r"(?<![A-Za-z])(?i:e?ssid)[\"']?(?:=| ?: ?)(?:'([^'\n]{2,64})'|\"([^\"\n]{2,64})\"|([^\s'\",]{2,32}))",
        "value value value",
    ),
)

WORKLOADS = (
    _rule("namespace:", r"\bName:([\w.-]+), ?(?:Uid|UID|Namespace):", "pod"),
    _rule("namespace:", r"\bNamespace:([\w.-]+)[,}]", "pod"),
    _rule("pod", r"\bpods?=\[?\"{0,1}([a-z0-9][\w.-]*)(?:/([a-z0-9][\w.-]*))?", "pod pod"),
    _rule(
        "podname namespace containername pod_name pod_namespace container_name",
        r"(?<![\w.-])(?:pod_?[Nn]ame|POD_NAME|(?:pod_?)?[Nn]amespace|POD_NAMESPACE|container_?[Nn]ame)[\"']?[=:] ?[\"']?([a-z0-9][\w.-]*)",
        "pod",
    ),
    _rule("pods=[", r"(?<=,)\"([a-z0-9][\w.-]*)/([a-z0-9][\w.-]*)\"(?=[,\]])", "pod pod"),
    _rule(
        "log/pods/", r"/log/pods/([^\s_/\"']+)_([^\s_/\"']+)_[^\s/\"']+(?:/([^\s/\"']+))?", "pod pod pod", in_paths=True
    ),
    _rule(
        "log/containers/",
        r"/log/containers/([^\s_/\"']+)_([^\s_/\"']+)_([^\s/\"']+?)(?=-[0-9a-f]{64}|\.log)",
        "pod pod pod",
        in_paths=True,
    ),
    _rule("kubelet/pods/", r"/kubelet/pods/[^\s/\"']+/containers/([^\s/\"']+)", "pod", in_paths=True),
    _rule("k8s_", r"\bk8s_([^\s_/\"']+)_([^\s_/\"']+)_([^\s_/\"']+)_", "pod pod pod", in_paths=True),
    _rule("lxc", r"\blxc(?:\.payload\.|\.monitor\.|/)([\w.-]*\w)", "vm", in_paths=True),
    _rule("machine-qemu", r"\bmachine-qemu\\x2d\d+\\x2d([^\s/\"']{1,160}?)\.scope", "unit", in_paths=True),
    _rule(
        "machine- nspawn",
        r"\b(?:machine-(?!qemu\\x2d)|systemd-nspawn@)([^\s/\"']{1,160}?)\.(?:scope|service)",
        "unit",
        in_paths=True,
    ),
    _rule("guest=", r"\bguest=([^\s,\"']+)", "vm"),
)
