/*
 * A stand-in for libnvidia-ml.so.1, driven by a JSON file, so that tests load the real pynvml against a node
 * that is healthy, broken, slow, hung or crashing at will. It reads the file named by the environment variable
 * GPUDOCTOR_STANDIN_NVML at the first nvmlInit* and forgets it at the last nvmlShutdown. README.md beside this
 * file describes the JSON; in short:
 *
 *   {"driver_version": "550.163.01", "nvml_version": "12.550.163.01", "cuda_driver_version": 12040,
 *    "init": 0,                                     what nvmlInit* returns
 *    "errors": {"nvmlDeviceGetCount": 999},         what a call returns, whatever the device
 *    "before_init": ["nvmlSystemGetNVMLVersion"],   calls that answer without nvmlInit*; all others return 1
 *    "missing": ["nvmlDeviceGetPciInfo_v3"],        these exact symbols return 13 (build.py can leave them out)
 *    "devices": [{"uuid": "GPU-...", "pci_bus_id": "00000000:18:00.0", "minor": 0, ...,
 *                 "errors": {"handle": 15, "nvmlDeviceGetUUID": 999}}],
 *    "slow":  {"call": "nvmlInit_v2", "seconds": 3.0},
 *    "hang":  {"call": "nvmlDeviceGetUUID", "index": 3, "how": "sleep|spin|ioctl|write", "path": "..."},
 *    "crash": {"call": "nvmlInit_v2", "signal": "SEGV|ABRT|BUS|ILL|FPE|KILL|exit"}}
 *
 * "slow", "hang" and "crash" hold one rule or a list of them. Names of calls match every version of the call
 * (nvmlInit, nvmlInit_v2 and nvmlInitWithFlags are one), except in "missing" and "before_init". A key that a
 * query needs and the JSON lacks makes it return NVML_ERROR_NOT_SUPPORTED. To add a query, add a line to one of
 * the tables below; what fits none of them is in details.c (one value, or a struct of them) and lists.c.
 *
 * Signatures, layouts and return codes are those that pynvml declares (nvidia-ml-py 13.615.71, read 2026-11-29).
 * The stand-in takes no lock: init and shutdown belong to one thread, as in the worker that loads it.
 */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef int nvmlReturn_t;
enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    FUNCTION_NOT_FOUND = 13,
    CORRUPTED_INFOROM = 14,
    ARGUMENT_VERSION_MISMATCH = 25,
};

/* The queries: C symbol and JSON key. */

#define SYSTEM_STRING_QUERIES(X)                     \
    X(nvmlSystemGetDriverVersion, "driver_version")  \
    X(nvmlSystemGetNVMLVersion, "nvml_version")

#define SYSTEM_NUMBER_QUERIES(X)                                \
    X(nvmlSystemGetCudaDriverVersion, "cuda_driver_version")    \
    X(nvmlSystemGetCudaDriverVersion_v2, "cuda_driver_version")

#define DEVICE_STRING_QUERIES(X)                            \
    X(nvmlDeviceGetUUID, "uuid")                            \
    X(nvmlDeviceGetName, "name")                            \
    X(nvmlDeviceGetSerial, "serial")                        \
    X(nvmlDeviceGetVbiosVersion, "vbios_version")           \
    X(nvmlDeviceGetBoardPartNumber, "board_part_number")    \
    X(nvmlDeviceGetInforomImageVersion, "inforom_version")

#define DEVICE_NUMBER_QUERIES(X)                                            \
    X(nvmlDeviceGetMinorNumber, "minor")                                    \
    X(nvmlDeviceGetPersistenceMode, "persistence_mode")                     \
    X(nvmlDeviceGetComputeMode, "compute_mode")                             \
    X(nvmlDeviceGetArchitecture, "architecture")                            \
    X(nvmlDeviceGetMaxPcieLinkGeneration, "max_pcie_link_generation")       \
    X(nvmlDeviceGetMaxPcieLinkWidth, "max_pcie_link_width")                 \
    X(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_link_generation")          \
    X(nvmlDeviceGetCurrPcieLinkWidth, "pcie_link_width")                    \
    X(nvmlDeviceGetGpuMaxPcieLinkGeneration, "device_max_pcie_link_generation") \
    X(nvmlDeviceGetPcieReplayCounter, "pcie_replays")                       \
    X(nvmlDeviceGetPowerUsage, "power_milliwatts")                          \
    X(nvmlDeviceGetPowerManagementLimit, "power_limit_milliwatts")          \
    X(nvmlDeviceGetEnforcedPowerLimit, "enforced_power_limit_milliwatts")   \
    X(nvmlDeviceGetPowerManagementDefaultLimit, "default_power_limit_milliwatts") \
    X(nvmlDeviceGetBrand, "brand")                                          \
    X(nvmlDeviceGetBoardId, "board_id")                                     \
    X(nvmlDeviceGetMultiGpuBoard, "multi_gpu_board")                        \
    X(nvmlDeviceGetModuleId, "module_id")                                   \
    X(nvmlDeviceGetDisplayActive, "display_active")                         \
    X(nvmlDeviceGetAccountingMode, "accounting_mode")                       \
    X(nvmlDeviceGetVirtualizationMode, "virtualization_mode")               \
    X(nvmlDeviceGetHostVgpuMode, "host_vgpu_mode")                          \
    X(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pages_pending")      \
    X(nvmlDeviceGetFanSpeed, "fan_percent")                                 \
    X(nvmlDeviceGetPerformanceState, "performance_state")                   \
    X(nvmlDeviceGetNumaNodeId, "numa_node_id")                              \
    X(nvmlDeviceGetC2cModeInfoV, "c2c_enabled")                             \
    X(nvmlDeviceGetGpuInstanceId, "gpu_instance_id")                        \
    X(nvmlDeviceGetComputeInstanceId, "compute_instance_id")

#define DEVICE_LONG_QUERIES(X)                                                      \
    X(nvmlDeviceGetCurrentClocksEventReasons, "clocks_event_reasons")               \
    X(nvmlDeviceGetCurrentClocksThrottleReasons, "clocks_event_reasons")            \
    X(nvmlDeviceGetSupportedClocksEventReasons, "supported_clocks_event_reasons")   \
    X(nvmlDeviceGetSupportedClocksThrottleReasons, "supported_clocks_event_reasons")

/* Two numbers in one call; the JSON holds [first, second], or one number for both. */
#define DEVICE_PAIR_QUERIES(X)                                                  \
    X(nvmlDeviceGetMigMode, "mig_mode")                                         \
    X(nvmlDeviceGetEccMode, "ecc_mode")                                         \
    X(nvmlDeviceGetCudaComputeCapability, "compute_capability")                 \
    X(nvmlDeviceGetGspFirmwareMode, "gsp_mode")                                 \
    X(nvmlDeviceGetPowerManagementLimitConstraints, "power_limit_constraints")  \
    X(nvmlDeviceGetEncoderUtilization, "encoder_utilization")                   \
    X(nvmlDeviceGetDecoderUtilization, "decoder_utilization")

/* One number of several by the caller's number; the JSON holds them as a list, null for what is not supported. */
#define DEVICE_LISTED_QUERIES(X)                                                \
    X(nvmlDeviceGetTemperature, "temperatures")                                 \
    X(nvmlDeviceGetTemperatureThreshold, "temperature_thresholds")              \
    X(nvmlDeviceGetClockInfo, "clocks")                                         \
    X(nvmlDeviceGetMaxClockInfo, "max_clocks")                                  \
    X(nvmlDeviceGetApplicationsClock, "applications_clocks")                    \
    X(nvmlDeviceGetDefaultApplicationsClock, "default_applications_clocks")     \
    X(nvmlDeviceGetMaxCustomerBoostClock, "max_customer_boost_clocks")

/* About one NVLink: an entry of the list "nvlinks". */
#define LINK_NUMBER_QUERIES(X)                                  \
    X(nvmlDeviceGetNvLinkState, "active")                       \
    X(nvmlDeviceGetNvLinkVersion, "version")                    \
    X(nvmlDeviceGetNvLinkRemoteDeviceType, "remote_type")

#define HANDLE_BY_STRING_QUERIES(X)             \
    X(nvmlDeviceGetHandleByUUID, "uuid")        \
    X(nvmlDeviceGetHandleBySerial, "serial")

/* A mistake in the JSON ends the process with a status of its own: it must look like no fault of a driver. */
static void refuse(const char *problem, const char *about)
{
    fprintf(stderr, "libnvidia-ml stand-in: %s: %s\n", problem, about);
    _exit(97);
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        refuse("out of memory", strerror(errno));
    return memory;
}

/* JSON: a tree of values; surrogate pairs are not joined, so write other characters than ASCII as UTF-8. */

typedef struct value {
    enum { NOTHING, NUMBER, TEXT, LIST, OBJECT } kind;
    char *key; /* inside an object */
    double number;
    char *text;
    struct value *first, *next;
} value;

static value *parse_value(const char **at);

static void free_value(value *tree)
{
    while (tree) {
        value *next = tree->next;
        free_value(tree->first);
        free(tree->text);
        free(tree->key);
        free(tree);
        tree = next;
    }
}

static void skip_space(const char **at)
{
    *at += strspn(*at, " \t\r\n");
}

static bool skip_mark(const char **at, char mark)
{
    skip_space(at);
    if (**at != mark)
        return false;
    ++*at;
    return true;
}

static char *put_utf8(char *to, unsigned long code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xC0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3F));
    } else {
        *to++ = (char)(0xE0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3F));
        *to++ = (char)(0x80 | (code & 0x3F));
    }
    return to;
}

static char *parse_escape(const char **at, char *to)
{
    static const char marks[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *mark = **at ? strchr(marks, **at) : NULL;
    if (mark) {
        *to++ = meanings[mark - marks];
        ++*at;
    } else if (**at == 'u' && strspn(*at + 1, "0123456789abcdefABCDEF") >= 4) {
        char digits[5] = {(*at)[1], (*at)[2], (*at)[3], (*at)[4], 0};
        to = put_utf8(to, strtoul(digits, NULL, 16));
        *at += 5;
    } else {
        return NULL;
    }
    return to;
}

static char *parse_text(const char **at)
{
    if (!skip_mark(at, '"'))
        return NULL;
    const char *end = *at;
    while (*end && *end != '"')
        end += end[0] == '\\' && end[1] ? 2 : 1;
    char *text = allocate((size_t)(end - *at) + 1, 1), *to = text;
    while (to && *at < end) {
        if (**at == '\\') {
            ++*at;
            to = parse_escape(at, to);
        } else {
            *to++ = *(*at)++;
        }
    }
    if (!to || !skip_mark(at, '"')) {
        free(text);
        return NULL;
    }
    return text;
}

static bool parse_members(const char **at, value *group, char close)
{
    value **tail = &group->first;
    if (skip_mark(at, close))
        return true;
    do {
        char *key = NULL;
        if (group->kind == OBJECT && (!(key = parse_text(at)) || !skip_mark(at, ':'))) {
            free(key);
            return false;
        }
        if (!(*tail = parse_value(at))) {
            free(key);
            return false;
        }
        (*tail)->key = key;
        tail = &(*tail)->next;
    } while (skip_mark(at, ','));
    return skip_mark(at, close);
}

static bool parse_scalar(const char **at, value *scalar)
{
    static const struct { const char *word; int kind; double number; } words[] = {
        {"true", NUMBER, 1}, {"false", NUMBER, 0}, {"null", NOTHING, 0}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strncmp(*at, words[i].word, strlen(words[i].word)) == 0) {
            *at += strlen(words[i].word);
            scalar->kind = words[i].kind;
            scalar->number = words[i].number;
            return true;
        }
    }
    char *end;
    scalar->kind = NUMBER;
    scalar->number = strtod(*at, &end);
    bool moved = end != *at;
    *at = end;
    return moved;
}

static value *parse_value(const char **at)
{
    value *parsed = allocate(1, sizeof *parsed);
    bool good;
    skip_space(at);
    if (**at == '{' || **at == '[') {
        parsed->kind = **at == '{' ? OBJECT : LIST;
        ++*at;
        good = parse_members(at, parsed, parsed->kind == OBJECT ? '}' : ']');
    } else if (**at == '"') {
        parsed->kind = TEXT;
        good = (parsed->text = parse_text(at)) != NULL;
    } else {
        good = parse_scalar(at, parsed);
    }
    if (good)
        return parsed;
    free_value(parsed);
    return NULL;
}

static value *parse_document(const char *text)
{
    const char *at = text;
    value *root = parse_value(&at);
    skip_space(&at);
    if (root && root->kind == OBJECT && !*at)
        return root;
    free_value(root);
    fprintf(stderr, "libnvidia-ml stand-in: malformed JSON at byte %zu\n", (size_t)(at - text));
    return NULL;
}

static const value *member(const value *object, const char *key)
{
    if (!object || object->kind != OBJECT)
        return NULL;
    for (const value *each = object->first; each; each = each->next)
        if (strcmp(each->key, key) == 0)
            return each->kind == NOTHING ? NULL : each;
    return NULL;
}

static const char *text_of(const value *object, const char *key, const char *otherwise)
{
    const value *found = member(object, key);
    return found && found->kind == TEXT ? found->text : otherwise;
}

static double number_of(const value *object, const char *key, double otherwise)
{
    const value *found = member(object, key);
    return found && found->kind == NUMBER ? found->number : otherwise;
}

/* The node: the JSON, its devices (whose addresses are the handles) and the count of nvmlInit*. */

/* A GPU, or a MIG device of one, which has its GPU's index. */
typedef struct device {
    value *facts;
    unsigned index, part_count, looks;
    struct device *parts;
} device;

typedef const device *nvmlDevice_t;

static struct {
    value *root;
    device *devices;
    unsigned count, inits;
} node;

static unsigned length_of(const value *list)
{
    unsigned count = 0;
    for (const value *each = list ? list->first : NULL; each; each = each->next)
        count++;
    return count;
}

/* The entry of a list; null counts as an entry and is NULL here. */
static const value *entry_at(const value *list, unsigned index)
{
    const value *each = list ? list->first : NULL;
    while (each && index--)
        each = each->next;
    return each && each->kind != NOTHING ? each : NULL;
}

static char *read_whole(const char *path)
{
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file)
        return NULL;
    char *text = allocate(1, 1);
    size_t used = 0, got;
    do {
        char *larger = realloc(text, used + 4097);
        if (!larger)
            refuse("out of memory", path);
        text = larger;
        got = fread(text + used, 1, 4096, file);
        used += got;
        text[used] = 0;
    } while (got);
    fclose(file);
    return text;
}

static bool load_node(void)
{
    if (!node.root) {
        char *text = read_whole(getenv("GPUDOCTOR_STANDIN_NVML"));
        node.root = text ? parse_document(text) : NULL;
        free(text);
    }
    return node.root != NULL;
}

static device *make_devices(const value *list, unsigned count, const device *gpu);

static device *make_devices_of(const value *parts, const device *gpu)
{
    return parts ? make_devices(parts, length_of(parts), gpu) : NULL;
}

static device *make_devices(const value *list, unsigned count, const device *gpu)
{
    device *devices = allocate(count, sizeof *devices);
    for (unsigned i = 0; i < count; i++) {
        devices[i].facts = (value *)entry_at(list, i);
        devices[i].index = gpu ? gpu->index : i;
        const value *parts = gpu ? NULL : member(devices[i].facts, "mig_devices");
        devices[i].part_count = length_of(parts);
        devices[i].parts = make_devices_of(parts, &devices[i]);
    }
    return devices;
}

static void list_devices(void)
{
    const value *list = member(node.root, "devices");
    node.count = length_of(list);
    node.devices = make_devices(list, node.count, NULL);
}

static void forget_node(void)
{
    for (unsigned i = 0; i < node.count; i++)
        free(node.devices[i].parts);
    free_value(node.root);
    free(node.devices);
    memset(&node, 0, sizeof node);
}

static const device *known(const device *handle)
{
    for (unsigned i = 0; i < node.count; i++) {
        const device *gpu = &node.devices[i];
        if (handle == gpu || (gpu->parts && handle >= gpu->parts && handle < gpu->parts + gpu->part_count))
            return handle;
    }
    return NULL;
}

static const device *device_at(unsigned index)
{
    return index < node.count ? &node.devices[index] : NULL;
}

/* Faults: what the JSON wants to happen when a call is entered. */

static size_t stem_length(const char *call)
{
    if (strcmp(call, "nvmlInitWithFlags") == 0)
        return strlen("nvmlInit");
    const char *version = strstr(call, "_v");
    return version ? (size_t)(version - call) : strlen(call);
}

static bool same_call(const char *one, const char *other)
{
    size_t length = stem_length(one);
    return length == stem_length(other) && strncmp(one, other, length) == 0;
}

static bool rule_applies(const value *rule, const char *call, const device *subject)
{
    double index = number_of(rule, "index", -1);
    return same_call(text_of(rule, "call", ""), call) && (index < 0 || (subject && subject->index == index));
}

static const value *rule_for(const char *fault, const char *call, const device *subject)
{
    const value *rules = member(node.root, fault);
    if (rules && rules->kind == OBJECT)
        return rule_applies(rules, call, subject) ? rules : NULL;
    for (const value *each = rules ? rules->first : NULL; each; each = each->next)
        if (rule_applies(each, call, subject))
            return each;
    return NULL;
}

static void be_slow(const value *rule)
{
    double seconds = number_of(rule, "seconds", 0);
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) == -1 && errno == EINTR)
        continue;
}

/* Both ways into the kernel block in it when the test has prepared the path; if they return, the call goes on. */
static void enter_kernel(const char *path, bool write_there)
{
    int file = open(path, write_there ? O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC : O_RDWR | O_CLOEXEC, 0644);
    if (file < 0)
        refuse(strerror(errno), path);
    if (write_there) {
        static const char page[4096];
        if (write(file, page, sizeof page) != (ssize_t)sizeof page || fsync(file))
            fprintf(stderr, "libnvidia-ml stand-in: writing %s: %s\n", path, strerror(errno));
    } else {
        (void)ioctl(file, 0xC0DE, 0);
    }
    close(file);
}

static void hang(const value *rule)
{
    const char *how = text_of(rule, "how", "sleep"), *path = text_of(rule, "path", "");
    if (strcmp(how, "sleep") == 0)
        for (;;)
            pause();
    else if (strcmp(how, "spin") == 0)
        for (volatile unsigned turns = 0;; turns++)
            continue;
    else if (strcmp(how, "ioctl") == 0 || strcmp(how, "write") == 0)
        enter_kernel(path, how[0] == 'w');
    else
        refuse("unknown way to hang", how);
}

static void crash(const value *rule)
{
    static const struct { const char *name; int number; } signals[] = {
        {"SEGV", SIGSEGV}, {"ABRT", SIGABRT}, {"BUS", SIGBUS}, {"ILL", SIGILL}, {"FPE", SIGFPE}, {"KILL", SIGKILL}};
    const char *name = text_of(rule, "signal", "SEGV");
    if (strcmp(name, "exit") == 0)
        exit((int)number_of(rule, "status", 1));
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        if (strcmp(signals[i].name, name) == 0) {
            signal(signals[i].number, SIG_DFL);
            raise(signals[i].number);
        }
    }
    refuse("unknown signal", name);
}

static bool lists(const char *key, const char *call)
{
    const value *names = member(node.root, key);
    for (const value *each = names ? names->first : NULL; each; each = each->next)
        if (each->kind == TEXT && strcmp(each->text, call) == 0)
            return true;
    return false;
}

static nvmlReturn_t wanted_error(const value *errors, const char *call)
{
    bool handle = strncmp(call, "nvmlDeviceGetHandleBy", strlen("nvmlDeviceGetHandleBy")) == 0;
    for (const value *each = errors ? errors->first : NULL; each; each = each->next)
        if (each->key && (same_call(each->key, call) || (handle && strcmp(each->key, "handle") == 0)))
            return (nvmlReturn_t)each->number;
    return SUCCESS;
}

/* Every call comes through here first; subject is the device it is about, if it is about a known one. */
static nvmlReturn_t enter(const char *call, const device *subject)
{
    const value *rule;
    if (!load_node())
        return same_call(call, "nvmlInit") ? DRIVER_NOT_LOADED : UNINITIALIZED;
    if (lists("missing", call))
        return FUNCTION_NOT_FOUND;
    if (!node.inits && !same_call(call, "nvmlInit") && !lists("before_init", call))
        return UNINITIALIZED;
    if ((rule = rule_for("slow", call, subject)))
        be_slow(rule);
    if ((rule = rule_for("hang", call, subject)))
        hang(rule);
    if ((rule = rule_for("crash", call, subject)))
        crash(rule);
    nvmlReturn_t own = wanted_error(member(subject ? subject->facts : NULL, "errors"), call);
    return own ? own : wanted_error(member(node.root, "errors"), call);
}

/* From the second time on that a device is asked for its clocks event reasons, the keys of "later" hold before its others. */
static void grow_older(const char *call, const device *subject)
{
    device *aging = &node.devices[subject->index];
    value *later = (value *)member(aging->facts, "later");
    if (!later || strcmp(call, "nvmlDeviceGetCurrentClocksEventReasons") || ++aging->looks != 2)
        return;
    value **end = &later->first;
    while (*end)
        end = &(*end)->next;
    *end = aging->facts->first;
    aging->facts->first = later->first;
    later->first = NULL;
}

static nvmlReturn_t enter_device(const char *call, nvmlDevice_t handle)
{
    const device *subject = known(handle);
    if (subject)
        grow_older(call, subject);
    nvmlReturn_t status = enter(call, subject);
    return status || subject ? status : INVALID_ARGUMENT;
}

/* Answers. */

/* {"hex": "fffe"} stands for a string of any bytes; it may fill its buffer to the last one, without a NUL. */
static size_t raw_bytes(const value *text, char *to, size_t room)
{
    const char *hex = text_of(text, "hex", "");
    size_t count = 0;
    for (unsigned byte; count < room && sscanf(hex + 2 * count, "%2x", &byte) == 1; count++)
        to[count] = (char)byte;
    return count;
}

static nvmlReturn_t give_text(const value *facts, const char *key, char *buffer, unsigned length)
{
    const value *found = member(facts, key);
    if (!buffer)
        return INVALID_ARGUMENT;
    if (!found)
        return NOT_SUPPORTED;
    if (found->kind == OBJECT) {
        size_t count = raw_bytes(found, buffer, length);
        if (count < length)
            buffer[count] = 0;
        return SUCCESS;
    }
    if (found->kind != TEXT)
        refuse("expected a string", key);
    if (strlen(found->text) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(buffer, found->text);
    return SUCCESS;
}

static nvmlReturn_t give_number(const value *facts, const char *key, unsigned *number)
{
    if (!number)
        return INVALID_ARGUMENT;
    if (!member(facts, key))
        return NOT_SUPPORTED;
    *number = (unsigned)(long long)number_of(facts, key, 0);
    return SUCCESS;
}

static nvmlReturn_t give_long(const value *facts, const char *key, unsigned long long *number)
{
    if (!number)
        return INVALID_ARGUMENT;
    if (!member(facts, key))
        return NOT_SUPPORTED;
    *number = (unsigned long long)number_of(facts, key, 0);
    return SUCCESS;
}

static nvmlReturn_t give_listed(const value *facts, const char *key, unsigned which, unsigned *number)
{
    const value *list = member(facts, key);
    if (!number)
        return INVALID_ARGUMENT;
    if (list && which >= length_of(list))
        return INVALID_ARGUMENT;
    const value *found = entry_at(list, which);
    if (!found)
        return NOT_SUPPORTED;
    *number = (unsigned)(long long)found->number;
    return SUCCESS;
}

static nvmlReturn_t give_pair(const value *facts, const char *key, unsigned *one, unsigned *other)
{
    const value *pair = member(facts, key);
    if (!one || !other)
        return INVALID_ARGUMENT;
    if (!pair)
        return NOT_SUPPORTED;
    const value *first = pair->kind == LIST ? pair->first : pair;
    if (!first)
        refuse("expected a number or two", key);
    *one = (unsigned)first->number;
    *other = (unsigned)(pair->kind == LIST && first->next ? first->next : first)->number;
    return SUCCESS;
}

static nvmlReturn_t give_handle(const char *call, const device *subject, nvmlReturn_t otherwise, nvmlDevice_t *handle)
{
    nvmlReturn_t status = enter(call, subject);
    if (status)
        return status;
    if (!handle)
        return INVALID_ARGUMENT;
    if (!subject)
        return otherwise;
    *handle = subject;
    return SUCCESS;
}

static const device *device_with(const char *key, const char *text)
{
    for (unsigned i = 0; text && i < node.count; i++)
        if (strcmp(text_of(node.devices[i].facts, key, ""), text) == 0)
            return &node.devices[i];
    return NULL;
}

#define SYSTEM_STRING(call, key)                                       \
    EXPORT nvmlReturn_t call(char *buffer, unsigned length)            \
    {                                                                  \
        nvmlReturn_t status = enter(__func__, NULL);                   \
        return status ? status : give_text(node.root, key, buffer, length); \
    }
SYSTEM_STRING_QUERIES(SYSTEM_STRING)

#define SYSTEM_NUMBER(call, key)                                       \
    EXPORT nvmlReturn_t call(unsigned *number)                         \
    {                                                                  \
        nvmlReturn_t status = enter(__func__, NULL);                   \
        return status ? status : give_number(node.root, key, number);  \
    }
SYSTEM_NUMBER_QUERIES(SYSTEM_NUMBER)

#define DEVICE_STRING(call, key)                                                     \
    EXPORT nvmlReturn_t call(nvmlDevice_t handle, char *buffer, unsigned length)     \
    {                                                                                \
        nvmlReturn_t status = enter_device(__func__, handle);                        \
        return status ? status : give_text(handle->facts, key, buffer, length);      \
    }
DEVICE_STRING_QUERIES(DEVICE_STRING)

#define DEVICE_NUMBER(call, key)                                                     \
    EXPORT nvmlReturn_t call(nvmlDevice_t handle, unsigned *number)                  \
    {                                                                                \
        nvmlReturn_t status = enter_device(__func__, handle);                        \
        return status ? status : give_number(handle->facts, key, number);            \
    }
DEVICE_NUMBER_QUERIES(DEVICE_NUMBER)

#define DEVICE_LONG(call, key)                                                       \
    EXPORT nvmlReturn_t call(nvmlDevice_t handle, unsigned long long *number)        \
    {                                                                                \
        nvmlReturn_t status = enter_device(__func__, handle);                        \
        return status ? status : give_long(handle->facts, key, number);              \
    }
DEVICE_LONG_QUERIES(DEVICE_LONG)

#define DEVICE_LISTED(call, key)                                                        \
    EXPORT nvmlReturn_t call(nvmlDevice_t handle, unsigned which, unsigned *number)     \
    {                                                                                   \
        nvmlReturn_t status = enter_device(__func__, handle);                           \
        return status ? status : give_listed(handle->facts, key, which, number);        \
    }
DEVICE_LISTED_QUERIES(DEVICE_LISTED)

#define LINK_NUMBER(call, key)                                                      \
    EXPORT nvmlReturn_t call(nvmlDevice_t handle, unsigned link, unsigned *number)  \
    {                                                                               \
        nvmlReturn_t status = enter_device(__func__, handle);                       \
        const value *links = status ? NULL : member(handle->facts, "nvlinks");      \
        if (!status && links && link >= length_of(links))                           \
            status = INVALID_ARGUMENT;                                              \
        return status ? status : give_number(entry_at(links, link), key, number);   \
    }
LINK_NUMBER_QUERIES(LINK_NUMBER)

#define DEVICE_PAIR(call, key)                                                       \
    EXPORT nvmlReturn_t call(nvmlDevice_t handle, unsigned *one, unsigned *other)    \
    {                                                                                \
        nvmlReturn_t status = enter_device(__func__, handle);                        \
        return status ? status : give_pair(handle->facts, key, one, other);          \
    }
DEVICE_PAIR_QUERIES(DEVICE_PAIR)

#define HANDLE_BY_STRING(call, key)                                                  \
    EXPORT nvmlReturn_t call(const char *text, nvmlDevice_t *handle)                 \
    {                                                                                \
        return give_handle(__func__, device_with(key, text), NOT_FOUND, handle);     \
    }
HANDLE_BY_STRING_QUERIES(HANDLE_BY_STRING)

/* What fits no table. */

static nvmlReturn_t init(const char *call)
{
    nvmlReturn_t status = enter(call, NULL);
    if (!status && !node.inits)
        status = (nvmlReturn_t)number_of(node.root, "init", SUCCESS);
    if (status) {
        /* The next attempt reads the file again: a driver may come back. */
        if (!node.inits)
            forget_node();
        return status;
    }
    if (node.inits++ == 0)
        list_devices();
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlInit(void)
{
    return init(__func__);
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return init(__func__);
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return init(__func__);
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t status = enter(__func__, NULL);
    if (!status && --node.inits == 0)
        forget_node();
    return status;
}

/* The words of pynvml's own table, except 18, which is worded as nvidia-smi prints it. */
EXPORT const char *nvmlErrorString(nvmlReturn_t code)
{
    static const struct { nvmlReturn_t code; const char *words; } errors[] = {
        {0, "Success"}, {1, "Uninitialized"}, {2, "Invalid Argument"}, {3, "Not Supported"},
        {4, "Insufficient Permissions"}, {5, "Already Initialized"}, {6, "Not Found"}, {7, "Insufficient Size"},
        {8, "Insufficient External Power"}, {9, "Driver Not Loaded"}, {10, "Timeout"}, {11, "Interrupt Request Issue"},
        {12, "NVML Shared Library Not Found"}, {13, "Function Not Found"}, {14, "Corrupted infoROM"},
        {15, "GPU is lost"}, {16, "GPU requires restart"}, {17, "The operating system has blocked the request."},
        {18, "Driver/library version mismatch"}, {19, "In use by another client"}, {20, "Insufficient Memory"},
        {25, "Argument version mismatch"}, {999, "Unknown Error"}};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code)
            return errors[i].words;
    return "Unknown Error";
}

static nvmlReturn_t give_count(const char *call, unsigned *count)
{
    nvmlReturn_t status = enter(call, NULL);
    if (status)
        return status;
    if (!count)
        return INVALID_ARGUMENT;
    *count = node.count;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count)
{
    return give_count(__func__, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    return give_count(__func__, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *handle)
{
    return give_handle(__func__, device_at(index), INVALID_ARGUMENT, handle);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *handle)
{
    return give_handle(__func__, device_at(index), INVALID_ARGUMENT, handle);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned *index)
{
    nvmlReturn_t status = enter_device(__func__, handle);
    if (status)
        return status;
    if (!index)
        return INVALID_ARGUMENT;
    *index = handle->index;
    return SUCCESS;
}

typedef struct {
    unsigned domain, bus, device, function;
} address;

/* NVML takes domain:bus:device.function with a domain of four or eight digits, or without a domain. */
static bool parse_address(const char *text, address *parsed)
{
    *parsed = (address){0};
    if (sscanf(text, "%x:%x:%x.%x", &parsed->domain, &parsed->bus, &parsed->device, &parsed->function) >= 3)
        return true;
    parsed->domain = 0;
    return sscanf(text, "%x:%x.%x", &parsed->bus, &parsed->device, &parsed->function) >= 2;
}

static const device *device_on_bus(const char *bus_id)
{
    address wanted, own;
    if (!bus_id || !parse_address(bus_id, &wanted))
        return NULL;
    for (unsigned i = 0; i < node.count; i++)
        if (parse_address(text_of(node.devices[i].facts, "pci_bus_id", ""), &own) && !memcmp(&own, &wanted, sizeof own))
            return &node.devices[i];
    return NULL;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *handle)
{
    return give_handle(__func__, device_on_bus(bus_id), NOT_FOUND, handle);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *handle)
{
    return give_handle(__func__, device_on_bus(bus_id), NOT_FOUND, handle);
}

/* The part that all versions share. Up to _v2 four reserved words follow, from _v3 on the long bus id: the
   reason why the versions differ in size, 52 and 68 bytes. */
typedef struct {
    char short_bus_id[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
} pci_info;

typedef struct {
    pci_info common;
    unsigned reserved[4];
} pci_info_v2;

typedef struct {
    pci_info common;
    char bus_id[32];
} pci_info_v3;

_Static_assert(sizeof(pci_info_v2) == 52 && sizeof(pci_info_v3) == 68, "layouts of pynvml");

static nvmlReturn_t give_pci_info(const char *call, nvmlDevice_t handle, pci_info *info)
{
    nvmlReturn_t status = enter_device(call, handle);
    if (status)
        return status;
    if (!info)
        return INVALID_ARGUMENT;
    address own;
    if (!parse_address(text_of(handle->facts, "pci_bus_id", ""), &own))
        return NOT_SUPPORTED;
    char short_bus_id[48];
    snprintf(short_bus_id, sizeof short_bus_id, "%04X:%02X:%02X.%X", own.domain, own.bus, own.device, own.function);
    *info = (pci_info){
        .domain = own.domain,
        .bus = own.bus,
        .device = own.device,
        .pci_device_id = (unsigned)number_of(handle->facts, "pci_device_id", 0),
        .pci_subsystem_id = (unsigned)number_of(handle->facts, "pci_subsystem_id", 0),
    };
    memcpy(info->short_bus_id, short_bus_id, sizeof info->short_bus_id - 1);
    return SUCCESS;
}

static nvmlReturn_t give_pci_info_v2(const char *call, nvmlDevice_t handle, pci_info_v2 *info)
{
    nvmlReturn_t status = give_pci_info(call, handle, info ? &info->common : NULL);
    if (!status)
        memset(info->reserved, 0, sizeof info->reserved);
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t handle, pci_info_v2 *info)
{
    return give_pci_info_v2(__func__, handle, info);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t handle, pci_info_v2 *info)
{
    return give_pci_info_v2(__func__, handle, info);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, pci_info_v3 *info)
{
    nvmlReturn_t status = give_pci_info(__func__, handle, info ? &info->common : NULL);
    return status ? status : give_text(handle->facts, "pci_bus_id", info->bus_id, sizeof info->bus_id);
}

typedef struct {
    unsigned long long total, free, used;
} memory_info;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_info_v2;

static unsigned long long bytes_of(const value *memory, const char *key)
{
    return (unsigned long long)number_of(memory, key, 0);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, memory_info *info)
{
    nvmlReturn_t status = enter_device(__func__, handle);
    if (status)
        return status;
    const value *memory = member(handle->facts, "memory");
    if (!info)
        return INVALID_ARGUMENT;
    if (!memory)
        return NOT_SUPPORTED;
    *info = (memory_info){bytes_of(memory, "total"), bytes_of(memory, "free"), bytes_of(memory, "used")};
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, memory_info_v2 *info)
{
    nvmlReturn_t status = enter_device(__func__, handle);
    if (status)
        return status;
    const value *memory = member(handle->facts, "memory");
    if (!info)
        return INVALID_ARGUMENT;
    /* NVML_STRUCT_VERSION(Memory, 2): the size, with the version in the top byte. */
    if (info->version != (sizeof *info | 2u << 24))
        return ARGUMENT_VERSION_MISMATCH;
    if (!memory)
        return NOT_SUPPORTED;
    *info = (memory_info_v2){info->version, bytes_of(memory, "total"), bytes_of(memory, "reserved"),
                             bytes_of(memory, "free"), bytes_of(memory, "used")};
    return SUCCESS;
}

/* One translation unit, so that what is above stays out of the symbols. */
#include "details.c"
#include "lists.c"
