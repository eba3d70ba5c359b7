/*
 * The stand-in's answers about what a device or the node has several of; libnvidia_ml.c includes this file.
 */

/* The far end of an NVLink, and GPUs left out: PCI addresses without a device behind them. */

static void put_bus_id(const char *bus_id, pci_info_v3 *info)
{
    address parsed;
    memset(info, 0, sizeof *info);
    if (!parse_address(bus_id, &parsed))
        refuse("no PCI address", bus_id);
    info->common.domain = parsed.domain;
    info->common.bus = parsed.bus;
    info->common.device = parsed.device;
    snprintf(info->bus_id, sizeof info->bus_id, "%s", bus_id);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t handle, unsigned link, pci_info_v3 *info)
{
    const value *links;
    nvmlReturn_t status = enter_struct(__func__, handle, "nvlinks", info, &links);
    const char *bus_id = status ? NULL : text_of(entry_at(links, link), "remote_bus_id", NULL);
    if (status || !bus_id)
        return status ? status : NOT_SUPPORTED;
    put_bus_id(bus_id, info);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t handle, unsigned link, unsigned counter, unsigned long long *count)
{
    const value *links;
    nvmlReturn_t status = enter_struct(__func__, handle, "nvlinks", count, &links);
    const value *found = status ? NULL : entry_at(member(entry_at(links, link), "errors"), counter);
    if (status || !found)
        return status ? status : NOT_SUPPORTED;
    *count = (unsigned long long)found->number;
    return SUCCESS;
}

typedef struct {
    pci_info_v3 pci;
    char uuid[80];
} excluded_device;

_Static_assert(sizeof(excluded_device) == 148, "layout of pynvml");

EXPORT nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned *count)
{
    nvmlReturn_t status = enter(__func__, NULL);
    if (status || !count)
        return status ? status : INVALID_ARGUMENT;
    *count = length_of(member(node.root, "excluded_devices"));
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlGetExcludedDeviceInfoByIndex(unsigned index, excluded_device *info)
{
    nvmlReturn_t status = enter(__func__, NULL);
    const value *facts = status ? NULL : entry_at(member(node.root, "excluded_devices"), index);
    if (status || !info || !facts)
        return status ? status : INVALID_ARGUMENT;
    put_bus_id(text_of(facts, "pci_bus_id", ""), &info->pci);
    return give_text(facts, "uuid", info->uuid, sizeof info->uuid);
}

/* Processes: "processes" holds lists "compute", "graphics" and "mps". Versions 2 and 3 have one layout. */

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} process_info;

_Static_assert(sizeof(process_info) == 24, "layout of pynvml");

static nvmlReturn_t give_processes(const char *call, nvmlDevice_t handle, const char *kind, unsigned *count, process_info *infos)
{
    const value *kinds;
    nvmlReturn_t status = enter_struct(call, handle, "processes", count, &kinds);
    const value *list = status ? NULL : member(kinds, kind);
    if (status || !list)
        return status ? status : NOT_SUPPORTED;
    unsigned room = *count;
    *count = length_of(list);
    if (room < *count)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; infos && i < *count; i++) {
        const value *process = entry_at(list, i);
        infos[i] = (process_info){
            .pid = part_of(process, "pid"),
            .used = member(process, "used_bytes") ? whole_of(process, "used_bytes") : ~0ull,
            .gpu_instance = member(process, "gpu_instance_id") ? part_of(process, "gpu_instance_id") : ~0u,
            .compute_instance = member(process, "compute_instance_id") ? part_of(process, "compute_instance_id") : ~0u,
        };
    }
    return SUCCESS;
}

#define PROCESS_QUERIES(X)                                          \
    X(nvmlDeviceGetComputeRunningProcesses_v2, "compute")           \
    X(nvmlDeviceGetComputeRunningProcesses_v3, "compute")           \
    X(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics")         \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")         \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v2, "mps")            \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps")

#define PROCESSES(call, kind)                                                               \
    EXPORT nvmlReturn_t call(nvmlDevice_t handle, unsigned *count, process_info *infos)     \
    {                                                                                       \
        return give_processes(__func__, handle, kind, count, infos);                        \
    }
PROCESS_QUERIES(PROCESSES)

/* MIG: the entries of "mig_devices" are devices of their own; null is an index without one. */

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t handle, unsigned *count)
{
    nvmlReturn_t status = enter_device(__func__, handle);
    if (status || !count)
        return status ? status : INVALID_ARGUMENT;
    *count = (unsigned)number_of(handle->facts, "max_mig_devices", handle->part_count);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, unsigned index, nvmlDevice_t *part)
{
    nvmlReturn_t status = enter_device(__func__, handle);
    if (status || !part)
        return status ? status : INVALID_ARGUMENT;
    if (index >= handle->part_count || !handle->parts[index].facts)
        return NOT_FOUND;
    *part = &handle->parts[index];
    return SUCCESS;
}

typedef struct {
    unsigned sms, engines[5], gpu_slices, compute_slices;
    unsigned long long mebibytes;
} attributes;

_Static_assert(sizeof(attributes) == 40, "layout of pynvml");

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t handle, attributes *answer)
{
    const value *facts;
    nvmlReturn_t status = enter_struct(__func__, handle, "attributes", answer, &facts);
    if (status || !facts)
        return status ? status : NOT_SUPPORTED;
    *answer = (attributes){
        .sms = part_of(facts, "multiprocessors"),
        .gpu_slices = part_of(facts, "gpu_slices"),
        .compute_slices = part_of(facts, "compute_slices"),
        .mebibytes = whole_of(facts, "mebibytes"),
    };
    return SUCCESS;
}

/* Profiles by NVML_GPU_INSTANCE_PROFILE_*: null, or past the end of the list, is one that the GPU does not have. */

typedef struct {
    unsigned id, is_p2p, slices, instances, sms, engines[5];
    unsigned long long mebibytes;
} mig_profile;

typedef struct {
    unsigned version, id, is_p2p, slices, instances, sms, engines[5];
    unsigned long long mebibytes;
    char name[96];
} mig_profile_v2;

_Static_assert(sizeof(mig_profile) == 48 && sizeof(mig_profile_v2) == 152, "layouts of pynvml");

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t handle, unsigned number, mig_profile *answer)
{
    const value *profiles;
    nvmlReturn_t status = enter_struct(__func__, handle, "mig_profiles", answer, &profiles);
    const value *facts = status ? NULL : entry_at(profiles, number);
    if (status || !facts)
        return status ? status : NOT_SUPPORTED;
    *answer = (mig_profile){
        .id = part_of(facts, "id"),
        .slices = part_of(facts, "slices"),
        .instances = part_of(facts, "instances"),
        .mebibytes = whole_of(facts, "mebibytes"),
    };
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t handle, unsigned number, mig_profile_v2 *answer)
{
    const value *profiles;
    nvmlReturn_t status = enter_struct(__func__, handle, "mig_profiles", answer, &profiles);
    if (status)
        return status;
    if (answer->version != VERSION_OF(*answer, 2))
        return ARGUMENT_VERSION_MISMATCH;
    const value *facts = entry_at(profiles, number);
    if (!facts)
        return NOT_SUPPORTED;
    *answer = (mig_profile_v2){
        .version = answer->version,
        .id = part_of(facts, "id"),
        .slices = part_of(facts, "slices"),
        .instances = part_of(facts, "instances"),
        .mebibytes = whole_of(facts, "mebibytes"),
    };
    return give_text(facts, "name", answer->name, sizeof answer->name);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t handle, unsigned id, unsigned *count)
{
    const value *profiles;
    nvmlReturn_t status = enter_struct(__func__, handle, "mig_profiles", count, &profiles);
    for (const value *each = status || !profiles ? NULL : profiles->first; each; each = each->next)
        if (each->kind == OBJECT && part_of(each, "id") == id)
            return give_number(each, "free", count);
    return status ? status : NOT_SUPPORTED;
}

/* How two GPUs are joined: "topology" is a matrix of levels by index. */
EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, unsigned *level)
{
    nvmlReturn_t status = enter_device(__func__, one);
    if (status)
        return status;
    if (!known(other) || !level)
        return INVALID_ARGUMENT;
    const value *found = entry_at(entry_at(member(node.root, "topology"), one->index), other->index);
    if (!found)
        return NOT_SUPPORTED;
    *level = (unsigned)found->number;
    return SUCCESS;
}

/* Whether two GPUs may use each other's memory: "p2p" is a matrix of nvmlGpuP2PStatus_t by index, the same for every capability. */
EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, unsigned index, unsigned *answer)
{
    nvmlReturn_t status = enter_device(__func__, one);
    if (status)
        return status;
    if (!known(other) || !answer || index > 4)
        return INVALID_ARGUMENT;
    const value *found = entry_at(entry_at(member(node.root, "p2p"), one->index), other->index);
    if (!found)
        return NOT_SUPPORTED;
    *answer = (unsigned)found->number;
    return SUCCESS;
}

/* Confidential computing. */

typedef struct {
    unsigned environment, feature, dev_tools;
} conf_compute_state;

typedef struct {
    unsigned version;
    conf_compute_state state;
    unsigned multi_gpu;
} conf_compute_settings;

_Static_assert(sizeof(conf_compute_settings) == 20, "layout of pynvml");

static nvmlReturn_t give_conf_compute(conf_compute_state *answer)
{
    const value *facts = member(node.root, "conf_compute");
    if (!facts)
        return NOT_SUPPORTED;
    *answer = (conf_compute_state){part_of(facts, "environment"), part_of(facts, "cc_feature"), part_of(facts, "dev_tools")};
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetConfComputeState(conf_compute_state *answer)
{
    nvmlReturn_t status = enter(__func__, NULL);
    if (status || !answer)
        return status ? status : INVALID_ARGUMENT;
    return give_conf_compute(answer);
}

EXPORT nvmlReturn_t nvmlSystemGetConfComputeSettings(conf_compute_settings *answer)
{
    nvmlReturn_t status = enter(__func__, NULL);
    if (status || !answer)
        return status ? status : INVALID_ARGUMENT;
    if (answer->version != VERSION_OF(*answer, 1))
        return ARGUMENT_VERSION_MISMATCH;
    answer->multi_gpu = part_of(member(node.root, "conf_compute"), "multi_gpu_mode");
    return give_conf_compute(&answer->state);
}

EXPORT nvmlReturn_t nvmlSystemGetConfComputeGpusReadyState(unsigned *ready)
{
    nvmlReturn_t status = enter(__func__, NULL);
    return status ? status : give_number(member(node.root, "conf_compute"), "gpus_ready", ready);
}
