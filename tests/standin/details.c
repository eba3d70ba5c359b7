/*
 * The stand-in's answers that fit no table of libnvidia_ml.c, which includes this file: structs with a version word, numbers with
 * several keys, field values. A struct whose version word is not NVML_STRUCT_VERSION of one that the library knows gives 25.
 * Layouts are those of nvidia-ml-py 13.615.71, except where nvml.h 13.5 says otherwise.
 */

/* NVML_STRUCT_VERSION: the size, with the version in the top byte. */
#define VERSION_OF(type, number) ((unsigned)sizeof(type) | (unsigned)(number) << 24)

static unsigned long long whole_of(const value *object, const char *key)
{
    return (unsigned long long)number_of(object, key, 0);
}

static unsigned part_of(const value *object, const char *key)
{
    return (unsigned)number_of(object, key, 0);
}

/* What every query for a struct begins with: the device, the place for the answer, and what the JSON says. */
static nvmlReturn_t enter_struct(const char *call, nvmlDevice_t handle, const char *key, const void *place, const value **facts)
{
    nvmlReturn_t status = enter_device(call, handle);
    if (status)
        return status;
    if (!place)
        return INVALID_ARGUMENT;
    *facts = member(handle->facts, key);
    return SUCCESS;
}

/* Strings and bytes. */

EXPORT nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t handle, char *version)
{
    nvmlReturn_t status = enter_device(__func__, handle);
    return status ? status : give_text(handle->facts, "gsp_version", version, 0x40);
}

EXPORT nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t handle, unsigned object, char *version, unsigned length)
{
    static const char *const keys[] = {"inforom_oem", "inforom_ecc", "inforom_power"};
    nvmlReturn_t status = enter_device(__func__, handle);
    if (status)
        return status;
    return object < 3 ? give_text(handle->facts, keys[object], version, length) : INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t handle)
{
    unsigned valid;
    nvmlReturn_t status = enter_device(__func__, handle);
    if (!status)
        status = give_number(handle->facts, "inforom_valid", &valid);
    return status || valid ? status : CORRUPTED_INFOROM;
}

/* Errors of memory: the JSON's keys are the numbers that the caller gives, joined by points. */

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t handle, unsigned error, unsigned counter, unsigned long long *count)
{
    char key[32];
    const value *counts;
    nvmlReturn_t status = enter_struct(__func__, handle, "total_ecc_errors", count, &counts);
    snprintf(key, sizeof key, "%u.%u", error, counter);
    return status ? status : give_long(counts, key, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t handle, unsigned error, unsigned counter, unsigned location,
                                                    unsigned long long *count)
{
    char key[48];
    const value *counts;
    nvmlReturn_t status = enter_struct(__func__, handle, "memory_errors", count, &counts);
    snprintf(key, sizeof key, "%u.%u.%u", error, counter, location);
    return status ? status : give_long(counts, key, count);
}

typedef struct {
    unsigned version;
    unsigned long long counts[11];
    unsigned threshold_exceeded;
} sram_status;

_Static_assert(sizeof(sram_status) == 104, "layout of pynvml");

EXPORT nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t handle, sram_status *answer)
{
    static const char *const keys[] = {
        "aggregateUncParity",   "aggregateUncSecDed",   "aggregateCor",           "volatileUncParity",
        "volatileUncSecDed",    "volatileCor",          "aggregateUncBucketL2",   "aggregateUncBucketSm",
        "aggregateUncBucketPcie", "aggregateUncBucketMcu", "aggregateUncBucketOther"};
    const value *facts;
    nvmlReturn_t status = enter_struct(__func__, handle, "sram_ecc", answer, &facts);
    if (status)
        return status;
    if (answer->version != VERSION_OF(*answer, 1))
        return ARGUMENT_VERSION_MISMATCH;
    if (!facts)
        return NOT_SUPPORTED;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        answer->counts[i] = whole_of(facts, keys[i]);
    answer->threshold_exceeded = part_of(facts, "bThresholdExceeded");
    return SUCCESS;
}

typedef struct {
    unsigned version, channel, tpc;
} repair_status;

EXPORT nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t handle, repair_status *answer)
{
    const value *facts;
    nvmlReturn_t status = enter_struct(__func__, handle, "repair_pending", answer, &facts);
    if (status)
        return status;
    if (answer->version != VERSION_OF(*answer, 1))
        return ARGUMENT_VERSION_MISMATCH;
    return give_pair(handle->facts, "repair_pending", &answer->channel, &answer->tpc);
}

/* One word as nvml.h 13.5 has it; with "unrepairable_memory_versioned" a version and the word, as pynvml declares it. */
EXPORT nvmlReturn_t nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t handle, unsigned *answer)
{
    const value *versioned;
    nvmlReturn_t status = enter_struct(__func__, handle, "unrepairable_memory_versioned", answer, &versioned);
    if (status)
        return status;
    if (versioned && answer[0] != (8 | 1u << 24))
        return ARGUMENT_VERSION_MISMATCH;
    return give_number(handle->facts, versioned ? "unrepairable_memory_versioned" : "unrepairable_memory", answer + !!versioned);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t handle, unsigned cause, unsigned *count, unsigned long long *pages)
{
    const value *causes;
    nvmlReturn_t status = enter_struct(__func__, handle, "retired_pages", count, &causes);
    if (status)
        return status;
    if (!causes)
        return NOT_SUPPORTED;
    const value *list = entry_at(causes, cause);
    unsigned room = *count;
    *count = length_of(list);
    if (room < *count)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; pages && i < *count; i++)
        pages[i] = (unsigned long long)entry_at(list, i)->number;
    return SUCCESS;
}

/* Four numbers, and five. */

static nvmlReturn_t give_numbers(nvmlDevice_t handle, const char *call, const char *key, unsigned *const *numbers, unsigned count)
{
    const value *list;
    nvmlReturn_t status = enter_struct(call, handle, key, numbers[0], &list);
    if (status)
        return status;
    if (!list)
        return NOT_SUPPORTED;
    for (unsigned i = 0; i < count; i++) {
        const value *found = entry_at(list, i);
        if (!found)
            refuse("expected more numbers", key);
        *numbers[i] = (unsigned)found->number;
    }
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                              unsigned *failed)
{
    unsigned *const numbers[] = {corrected, uncorrected, pending, failed};
    return give_numbers(handle, __func__, "remapped_rows", numbers, 4);
}

typedef struct {
    unsigned max, high, partial, low, none;
} row_histogram;

EXPORT nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t handle, row_histogram *answer)
{
    unsigned *const numbers[] = {&answer->max, &answer->high, &answer->partial, &answer->low, &answer->none};
    return give_numbers(handle, __func__, "row_remapper_histogram", numbers, 5);
}

typedef struct {
    unsigned gpu, memory;
} utilization;

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, utilization *answer)
{
    unsigned *const numbers[] = {&answer->gpu, &answer->memory};
    return give_numbers(handle, __func__, "utilization", numbers, 2);
}

/* Temperature in the newer shapes. */

typedef struct {
    unsigned version, sensor;
    int temperature;
} temperature;

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t handle, temperature *answer)
{
    const value *facts;
    nvmlReturn_t status = enter_struct(__func__, handle, "temperatures", answer, &facts);
    if (status)
        return status;
    if (answer->version != VERSION_OF(*answer, 1))
        return ARGUMENT_VERSION_MISMATCH;
    return give_listed(handle->facts, "temperatures", answer->sensor, (unsigned *)&answer->temperature);
}

typedef struct {
    unsigned version, number;
} versioned_number;

static nvmlReturn_t give_versioned(nvmlDevice_t handle, const char *call, const char *key, versioned_number *answer)
{
    const value *facts;
    nvmlReturn_t status = enter_struct(call, handle, key, answer, &facts);
    if (status)
        return status;
    if (answer->version != VERSION_OF(*answer, 1))
        return ARGUMENT_VERSION_MISMATCH;
    return give_number(handle->facts, key, &answer->number);
}

EXPORT nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t handle, versioned_number *answer)
{
    return give_versioned(handle, __func__, "margin_temperature", answer);
}

EXPORT nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t handle, versioned_number *answer)
{
    return give_versioned(handle, __func__, "addressing_mode", answer);
}

/* Memory beside the frame buffer. */

EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t handle, memory_info *answer)
{
    const value *facts;
    nvmlReturn_t status = enter_struct(__func__, handle, "bar1", answer, &facts);
    if (status || !facts)
        return status ? status : NOT_SUPPORTED;
    *answer = (memory_info){whole_of(facts, "total"), whole_of(facts, "free"), whole_of(facts, "used")};
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t handle, memory_info *answer)
{
    const value *facts;
    nvmlReturn_t status = enter_struct(__func__, handle, "protected_memory", answer, &facts);
    if (status || !facts)
        return status ? status : NOT_SUPPORTED;
    *answer = (memory_info){whole_of(facts, "total"), whole_of(facts, "free"), whole_of(facts, "used")};
    return SUCCESS;
}

/* Affinity: the JSON holds spans, [[0, 31], [64, 95]]. */

static nvmlReturn_t give_bits(nvmlDevice_t handle, const char *call, const char *key, unsigned size, unsigned long *bits)
{
    const value *spans;
    nvmlReturn_t status = enter_struct(call, handle, key, bits, &spans);
    if (status || !spans)
        return status ? status : NOT_SUPPORTED;
    if (!size)
        return INVALID_ARGUMENT;
    memset(bits, 0, size * sizeof *bits);
    for (const value *span = spans->first; span; span = span->next) {
        if (length_of(span) != 2)
            refuse("expected [first, last]", key);
        for (unsigned bit = (unsigned)span->first->number; bit <= (unsigned)span->first->next->number; bit++)
            if (bit < size * 64)
                bits[bit / 64] |= 1ul << bit % 64;
    }
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t handle, unsigned size, unsigned long *bits, unsigned scope)
{
    return scope > 1 ? INVALID_ARGUMENT : give_bits(handle, __func__, "cpus", size, bits);
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t handle, unsigned size, unsigned long *bits)
{
    return give_bits(handle, __func__, "cpus", size, bits);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t handle, unsigned size, unsigned long *bits, unsigned scope)
{
    return scope > 1 ? INVALID_ARGUMENT : give_bits(handle, __func__, "numa_nodes", size, bits);
}

/* Fabric: the first shape has no version word, the later ones grow at the end. "fabric.newest" is the last version known, 3. */

typedef struct {
    unsigned char cluster_uuid[16];
    unsigned status, clique_id;
    unsigned char state;
} fabric;

typedef struct {
    unsigned version;
    fabric common;
    unsigned health_mask;
} fabric_v2;

typedef struct {
    unsigned version;
    fabric common;
    unsigned health_mask;
    unsigned char health_summary;
} fabric_v3;

_Static_assert(sizeof(fabric) == 28 && sizeof(fabric_v2) == 36 && sizeof(fabric_v3) == 40, "layouts of pynvml");

static nvmlReturn_t give_fabric(const value *facts, fabric *answer)
{
    if (!facts)
        return NOT_SUPPORTED;
    *answer = (fabric){
        .status = part_of(facts, "status"),
        .clique_id = part_of(facts, "clique_id"),
        .state = (unsigned char)part_of(facts, "state"),
    };
    const value *cluster = member(facts, "cluster_uuid");
    if (cluster)
        raw_bytes(cluster, (char *)answer->cluster_uuid, sizeof answer->cluster_uuid);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t handle, fabric *answer)
{
    const value *facts;
    nvmlReturn_t status = enter_struct(__func__, handle, "fabric", answer, &facts);
    return status ? status : give_fabric(facts, answer);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t handle, fabric_v3 *answer)
{
    const value *facts;
    nvmlReturn_t status = enter_struct(__func__, handle, "fabric", answer, &facts);
    if (status)
        return status;
    unsigned newest = (unsigned)number_of(facts, "newest", 3);
    bool third = answer->version == VERSION_OF(fabric_v3, 3) && newest >= 3;
    if (!third && answer->version != VERSION_OF(fabric_v2, 2))
        return ARGUMENT_VERSION_MISMATCH;
    status = give_fabric(facts, &answer->common);
    if (status)
        return status;
    answer->health_mask = part_of(facts, "health_mask");
    if (third)
        answer->health_summary = (unsigned char)part_of(facts, "health_summary");
    return SUCCESS;
}

/* Versions 1 and 2 are the same bytes under other names; "platform.newest" is the last version known. */
typedef struct {
    unsigned version;
    char ib_guid[16], chassis_serial[16];
    unsigned char slot, tray, host_id, peer_type, module_id;
} platform;

_Static_assert(sizeof(platform) == 44, "layout of pynvml");

EXPORT nvmlReturn_t nvmlDeviceGetPlatformInfo(nvmlDevice_t handle, platform *answer)
{
    const value *facts;
    nvmlReturn_t status = enter_struct(__func__, handle, "platform", answer, &facts);
    if (status)
        return status;
    unsigned newest = (unsigned)number_of(facts, "newest", 2);
    if (answer->version != VERSION_OF(*answer, 1) && (newest < 2 || answer->version != VERSION_OF(*answer, 2)))
        return ARGUMENT_VERSION_MISMATCH;
    if (!facts)
        return NOT_SUPPORTED;
    memset(answer->ib_guid, 0, sizeof answer->ib_guid + sizeof answer->chassis_serial);
    status = give_text(facts, "chassis_serial", answer->chassis_serial, sizeof answer->chassis_serial);
    answer->slot = (unsigned char)part_of(facts, "slot");
    answer->tray = (unsigned char)part_of(facts, "tray");
    answer->host_id = (unsigned char)part_of(facts, "host_id");
    answer->peer_type = (unsigned char)part_of(facts, "peer_type");
    answer->module_id = (unsigned char)part_of(facts, "module_id");
    return status;
}

/* Licences of vGPU. */

typedef struct {
    unsigned code, state;
    char info[128], product[128];
    unsigned enabled;
    unsigned char expiry[16];
} licensable_feature;

typedef struct {
    int supported;
    unsigned count;
    licensable_feature features[3];
} licensable_features;

_Static_assert(sizeof(licensable_features) == 860, "layout of pynvml");

EXPORT nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t handle, licensable_features *answer)
{
    const value *facts;
    nvmlReturn_t status = enter_struct(__func__, handle, "licensable_features", answer, &facts);
    if (status || !facts)
        return status ? status : NOT_SUPPORTED;
    memset(answer, 0, sizeof *answer);
    answer->supported = 1;
    answer->count = length_of(facts);
    for (unsigned i = 0; i < answer->count && i < 3; i++) {
        const value *feature = entry_at(facts, i);
        answer->features[i].code = part_of(feature, "code");
        answer->features[i].state = part_of(feature, "state");
        answer->features[i].enabled = part_of(feature, "enabled");
        status = give_text(feature, "product", answer->features[i].product, sizeof answer->features[i].product);
        if (status)
            refuse("a feature needs a product", "licensable_features");
    }
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetActiveVgpus(nvmlDevice_t handle, unsigned *count, unsigned *instances)
{
    const value *list;
    nvmlReturn_t status = enter_struct(__func__, handle, "active_vgpus", count, &list);
    if (status || !list)
        return status ? status : NOT_SUPPORTED;
    unsigned room = *count;
    *count = length_of(list);
    if (room < *count)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; instances && i < *count; i++)
        instances[i] = (unsigned)entry_at(list, i)->number;
    return SUCCESS;
}

/* Field values. */

typedef struct {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type;
    nvmlReturn_t status;
    union {
        double real;
        int signed_number;
        unsigned number;
        unsigned long long long_number;
        long long signed_long_number;
        unsigned short short_number;
    } value;
} field_value;

_Static_assert(sizeof(field_value) == 40, "layout of pynvml");

enum { DOUBLE, UNSIGNED_INT, UNSIGNED_LONG, UNSIGNED_LONG_LONG, SIGNED_LONG_LONG, SIGNED_INT, UNSIGNED_SHORT };

static void put_number(field_value *field, double number, unsigned type)
{
    field->type = type;
    switch (type) {
    case DOUBLE: field->value.real = number; break;
    case SIGNED_INT: field->value.signed_number = (int)number; break;
    case UNSIGNED_INT: field->value.number = (unsigned)number; break;
    case SIGNED_LONG_LONG: field->value.signed_long_number = (long long)number; break;
    case UNSIGNED_SHORT: field->value.short_number = (unsigned short)number; break;
    default: field->value.long_number = (unsigned long long)number;
    }
}

/* A link's own fields by its number as scope: its speed, and "fields" by id; the number of links is the device's. */
static const value *link_field(nvmlDevice_t handle, const field_value *field)
{
    char id[16];
    const value *link = entry_at(member(handle->facts, "nvlinks"), field->scope);
    snprintf(id, sizeof id, "%u", field->id);
    if (field->id == 164)
        return member(link, "megabytes_per_second");
    return field->id > 100 ? member(member(link, "fields"), id) : NULL;
}

static const value *device_field(nvmlDevice_t handle, const field_value *field)
{
    char key[32];
    snprintf(key, sizeof key, field->scope ? "%u@%u" : "%u", field->id, field->scope);
    return member(member(handle->facts, "field_values"), key);
}

static void answer_field(nvmlDevice_t handle, field_value *field)
{
    const value *found = device_field(handle, field);
    const value *links = member(handle->facts, "nvlinks");
    if (!found)
        found = link_field(handle, field);
    if (found && found->kind == TEXT)
        return; /* "untouched" */
    field->timestamp = 1795953600000000;
    field->status = SUCCESS;
    if (field->id == 91 && !found && links)
        put_number(field, length_of(links), UNSIGNED_INT);
    else if (!found)
        field->status = NOT_SUPPORTED;
    else if (member(found, "error"))
        field->status = (nvmlReturn_t)number_of(found, "error", 0);
    else if (found->kind == OBJECT)
        put_number(field, number_of(found, "value", 0), (unsigned)number_of(found, "type", 0));
    else
        put_number(field, found->number, found->number < 0 ? SIGNED_INT : found->number > 4294967295.0 ? UNSIGNED_LONG_LONG : UNSIGNED_INT);
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, field_value *values)
{
    nvmlReturn_t status = enter_device(__func__, handle);
    if (status)
        return status;
    if (!values || count > number_of(handle->facts, "most_field_values", 1000))
        return INVALID_ARGUMENT;
    for (int i = 0; i < count; i++)
        answer_field(handle, &values[i]);
    return SUCCESS;
}
