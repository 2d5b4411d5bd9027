/* A stand-in for libnvidia-ml.so.1: the same C interface, driven by a text file named in $TRAINMON_LAB_NVML.

   The file is read again whenever it changes. One statement a line; GPU is an index or `*`:
     gpus N                       how many GPUs the library counts
     driver TEXT
     set GPU FIELD NUMBER         see FIELDS; a field is a number in NVML's own unit
     uuid GPU TEXT | name GPU TEXT | pci GPU TEXT
     error GPU FUNCTION CODE      FUNCTION may be `*`; CODE is an nvmlReturn_t
     hang GPU FUNCTION            the call does not return
     crash GPU FUNCTION           the call kills the process
     process GPU PID BYTES c|g GI a compute or graphics process, with MIG in the GPU instance GI
     instance GPU GI CI TOTAL USED PROFILE    an instance, if MIG is on (set GPU mig 1)
     xid NUMBER GPU CODE          an Xid event; NUMBER must grow from one event to the next
   Later lines win. A GPU that the file hides with `gpus` is gone only after the next nvmlInit, as with a driver. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GPUS 16
#define RULES 64
#define PROCESSES 64
#define XIDS 64
#define NOT_SUPPORTED 3
#define INSUFFICIENT_SIZE 7
#define TIMEOUT 10
#define INVALID 2
#define GPU_IS_LOST 15

static const char *FIELDS[] = {
    "temperature", "memory_temperature", "margin", "memory_total", "memory_reserved", "memory_used", "utilization",
    "power", "power_limit", "sm_clock", "throttle", "ecc_uncorrected", "ecc_corrected", "remap_pending",
    "remap_failed", "mig", "pcie_gen", "pcie_gen_max", "pcie_width", "pcie_width_max", "pcie_replays", "nvlinks",
    "nvlinks_up", "nvlink_errors", NULL};
enum { TEMPERATURE, MEMORY_TEMPERATURE, MARGIN, MEMORY_TOTAL, MEMORY_RESERVED, MEMORY_USED, UTILIZATION, POWER,
       POWER_LIMIT, SM_CLOCK, THROTTLE, ECC_UNCORRECTED, ECC_CORRECTED, REMAP_PENDING, REMAP_FAILED, MIG, PCIE_GEN,
       PCIE_GEN_MAX, PCIE_WIDTH, PCIE_WIDTH_MAX, PCIE_REPLAYS, NVLINKS, NVLINKS_UP, NVLINK_ERRORS, NFIELDS };
static const long long DEFAULTS[NFIELDS] = {41, 48, 46, 85520809984LL, 640000000LL, 20781727744LL, 97, 631950, 700000,
                                            1980, 0, 0, 0, 0, 0, 0, 5, 5, 16, 16, 0, 18, 18, 0};

typedef struct { int index, gi, ci; long long total, used; char profile[32]; } Device; /* gi -1: the whole GPU */
typedef struct { int gpu; char function[64]; int code; } Rule; /* code -1: hang, -2: crash */
typedef struct { int gpu; unsigned pid; unsigned long long bytes; char kind; int gi; } Process;
typedef struct { long number; int gpu; unsigned code; } XidEvent;

#define INSTANCES 7
static Device devices[GPUS], instances[GPUS][INSTANCES];
static int ninstances[GPUS];
static long long values[GPUS][NFIELDS];
static char uuids[GPUS][80], names[GPUS][96], pcis[GPUS][32], driver[80];
static Rule rules[RULES];
static Process processes[PROCESSES];
static XidEvent xids[XIDS];
static int gpus = 8, counted = 8, nrules, nprocesses, nxids, initialised;
static long last_xid;
static struct stat seen;

static void defaults(void) {
    gpus = 8, nrules = nprocesses = nxids = 0;
    strcpy(driver, "580.126.09");
    for (int i = 0; i < GPUS; i++) {
        devices[i] = (Device){.index = i, .gi = -1};
        ninstances[i] = 0;
        memcpy(values[i], DEFAULTS, sizeof DEFAULTS);
        snprintf(uuids[i], sizeof uuids[i], "GPU-00000000-0000-0000-0000-%012d", i);
        strcpy(names[i], "NVIDIA H100 80GB HBM3");
        snprintf(pcis[i], sizeof pcis[i], "00000000:%02X:00.0", 0x10 * (i + 1));
    }
}

static void statement(char *line) {
    char gpu_text[16], word[64], more[96] = "";
    long long number;
    unsigned pid;
    long n;
    int from, to;
    line[strcspn(line, "\n")] = 0;
    if (sscanf(line, "gpus %d", &gpus) == 1) return;
    if (!strncmp(line, "driver ", 7)) { snprintf(driver, sizeof driver, "%.79s", line + 7); return; }
    if (sscanf(line, "xid %ld %d %u", &n, &from, &pid) == 3 && nxids < XIDS) {
        xids[nxids++] = (XidEvent){n, from, pid};
        return;
    }
    if (sscanf(line, "%63s %15s %95[^\n]", word, gpu_text, more) < 2) return;
    from = gpu_text[0] == '*' ? 0 : atoi(gpu_text), to = gpu_text[0] == '*' ? GPUS - 1 : from;
    if (from < 0 || to >= GPUS) return;
    for (int i = from; i <= to; i++) {
        char field[64];
        if (!strcmp(word, "set") && sscanf(more, "%63s %lli", field, &number) == 2) {
            for (int f = 0; FIELDS[f]; f++)
                if (!strcmp(FIELDS[f], field)) values[i][f] = number;
        } else if (!strcmp(word, "uuid")) snprintf(uuids[i], sizeof uuids[i], "%.79s", more);
        else if (!strcmp(word, "name")) snprintf(names[i], sizeof names[i], "%s", more);
        else if (!strcmp(word, "pci")) snprintf(pcis[i], sizeof pcis[i], "%.31s", more);
        else if (!strcmp(word, "process") && nprocesses < PROCESSES) {
            Process one = {.gpu = i, .kind = 'c', .gi = -1};
            if (sscanf(more, "%u %lld %c %d", &one.pid, &number, &one.kind, &one.gi) < 2) continue;
            one.bytes = (unsigned long long)number;
            processes[nprocesses++] = one;
        } else if (!strcmp(word, "instance") && ninstances[i] < INSTANCES) {
            Device one = {.index = i};
            if (sscanf(more, "%d %d %lld %lld %31s", &one.gi, &one.ci, &one.total, &one.used, one.profile) == 5)
                instances[i][ninstances[i]++] = one;
        }
    }
    if (nrules < RULES && (!strcmp(word, "error") || !strcmp(word, "hang") || !strcmp(word, "crash"))) {
        Rule *rule = &rules[nrules++];
        rule->gpu = gpu_text[0] == '*' ? -1 : from;
        rule->code = word[0] == 'h' ? -1 : -2;
        if (sscanf(more, "%63s %d", rule->function, &rule->code) < 1) nrules--;
    }
}

static void refresh(void) {
    const char *path = getenv("TRAINMON_LAB_NVML");
    struct stat now;
    char line[256];
    if (!path || stat(path, &now)) {
        if (!seen.st_ino) defaults(), seen.st_ino = 1;
        return;
    }
    if (now.st_ino == seen.st_ino && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec &&
        now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_size == seen.st_size) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    seen = now;
    defaults();
    while (fgets(line, sizeof line, file)) statement(line);
    fclose(file);
}

static int check(int gpu, const char *function) {
    /* What the call returns before it does anything: the last rule that fits. A GPU above the count is lost. */
    refresh();
    int code = 0;
    for (int i = 0; i < nrules; i++)
        if ((rules[i].gpu < 0 || rules[i].gpu == gpu) && (rules[i].function[0] == '*' || !strcmp(rules[i].function, function)))
            code = rules[i].code;
    while (code == -1) pause(), refresh();
    if (code == -2) abort();
    if (!code && !initialised && strncmp(function, "nvmlInit", 8)) return 1;
    if (!code && gpu >= gpus) return GPU_IS_LOST;
    return code;
}

#define CALL(gpu) do { int code_ = check(gpu, __func__); if (code_) return code_; } while (0)
#define DEV(device) (((Device *)(device))->index)
#define GI(device) (((Device *)(device))->gi)
#define VALUE(device, field) (values[DEV(device)][field])

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    CALL(-1);
    initialised = 1, counted = gpus;
    return 0;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { CALL(-1); initialised = 0; return 0; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case 0: return "Success";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    case 999: return "Unknown Error";
    default: return "Some other error";
    }
}

static int copy(char *to, unsigned size, const char *from) {
    if (strlen(from) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return 0;
}
int nvmlSystemGetDriverVersion(char *to, unsigned size) { CALL(-1); return copy(to, size, driver); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { CALL(-1); *version = 13000; return 0; }
int nvmlSystemGetProcessName(unsigned pid, char *to, unsigned size) { (void)pid; CALL(-1); return copy(to, size, "python"); }
int nvmlDeviceGetCount_v2(unsigned *count) { CALL(-1); *count = counted; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= (unsigned)counted) return INVALID;
    CALL((int)index);
    *device = &devices[index];
    return 0;
}
int nvmlDeviceGetName(void *d, char *to, unsigned size) {
    char text[160];
    CALL(DEV(d));
    snprintf(text, sizeof text, GI(d) < 0 ? "%s" : "%s MIG %s", names[DEV(d)], ((Device *)d)->profile);
    return copy(to, size, text);
}
int nvmlDeviceGetUUID(void *d, char *to, unsigned size) {
    char text[80];
    CALL(DEV(d));
    if (GI(d) < 0) return copy(to, size, uuids[DEV(d)]);
    snprintf(text, sizeof text, "MIG-00000000-0000-0000-%04d-%06d%06d", DEV(d), GI(d), ((Device *)d)->ci);
    return copy(to, size, text);
}

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} PciInfo;
int nvmlDeviceGetPciInfo_v3(void *d, PciInfo *info) {
    CALL(DEV(d));
    memset(info, 0, sizeof *info);
    sscanf(pcis[DEV(d)], "%x:%x:%x", &info->domain, &info->bus, &info->device);
    strcpy(info->bus_id, pcis[DEV(d)]);
    return 0;
}

#define NUMBER(function, type, field) \
    int function(void *d, type *value) { CALL(DEV(d)); *value = (type)VALUE(d, field); return 0; }
NUMBER(nvmlDeviceGetPowerUsage, unsigned, POWER)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, POWER_LIMIT)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, POWER_LIMIT)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, THROTTLE)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, THROTTLE)

#define CONSTANT(function, number) \
    int function(void *d, unsigned *value) { CALL(DEV(d)); *value = number; return 0; }
CONSTANT(nvmlDeviceGetArchitecture, 9)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, PCIE_GEN_MAX)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, PCIE_WIDTH_MAX)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, PCIE_GEN)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, PCIE_WIDTH)
NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned, PCIE_REPLAYS)
int nvmlDeviceGetNvLinkState(void *d, unsigned link, unsigned *is_up) {
    CALL(DEV(d));
    if (link >= VALUE(d, NVLINKS)) return INVALID;
    *is_up = link < VALUE(d, NVLINKS_UP);
    return 0;
}
CONSTANT(nvmlDeviceGetPerformanceState, 0)
int nvmlDeviceGetFanSpeed(void *d, unsigned *value) { CALL(DEV(d)); (void)value; return NOT_SUPPORTED; }
int nvmlDeviceGetPcieThroughput(void *d, int which, unsigned *value) { CALL(DEV(d)); *value = 1000 + which; return 0; }

int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *value) {
    (void)sensor;
    CALL(DEV(d));
    *value = (unsigned)VALUE(d, TEMPERATURE);
    return 0;
}
typedef struct { unsigned version; int sensor, temperature; } Temperature;
int nvmlDeviceGetTemperatureV(void *d, Temperature *t) { CALL(DEV(d)); t->temperature = (int)VALUE(d, TEMPERATURE); return 0; }
typedef struct { unsigned version; int margin; } Margin;
int nvmlDeviceGetMarginTemperature(void *d, Margin *m) { CALL(DEV(d)); m->margin = (int)VALUE(d, MARGIN); return 0; }

typedef struct { unsigned long long total, free, used; } Memory;
int nvmlDeviceGetMemoryInfo(void *d, Memory *m) {
    CALL(DEV(d));
    m->total = VALUE(d, MEMORY_TOTAL), m->used = VALUE(d, MEMORY_USED) + VALUE(d, MEMORY_RESERVED);
    if (GI(d) >= 0) m->total = ((Device *)d)->total, m->used = ((Device *)d)->used;
    m->free = m->total - m->used;
    return 0;
}
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
int nvmlDeviceGetMemoryInfo_v2(void *d, Memory2 *m) {
    CALL(DEV(d));
    if (m->version != 0x02000028) return 25;
    if (GI(d) < 0 && check(DEV(d), "whole_memory")) return check(DEV(d), "whole_memory");
    m->total = VALUE(d, MEMORY_TOTAL), m->used = VALUE(d, MEMORY_USED), m->reserved = VALUE(d, MEMORY_RESERVED);
    if (GI(d) >= 0) m->total = ((Device *)d)->total, m->used = ((Device *)d)->used, m->reserved = 0;
    m->free = m->total - m->used - m->reserved;
    return 0;
}
typedef struct { unsigned gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(void *d, Utilization *u) {
    CALL(DEV(d));
    if (VALUE(d, MIG)) return NOT_SUPPORTED;
    u->gpu = (unsigned)VALUE(d, UTILIZATION), u->memory = 30;
    return 0;
}
int nvmlDeviceGetClockInfo(void *d, int which, unsigned *mhz) {
    CALL(DEV(d));
    *mhz = which == 1 ? (unsigned)VALUE(d, SM_CLOCK) : 2619;
    return 0;
}
int nvmlDeviceGetTotalEccErrors(void *d, int corrected_0, int aggregate, unsigned long long *count) {
    (void)aggregate;
    CALL(DEV(d));
    *count = (unsigned long long)VALUE(d, corrected_0 ? ECC_UNCORRECTED : ECC_CORRECTED);
    return 0;
}
int nvmlDeviceGetRemappedRows(void *d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    CALL(DEV(d));
    *corrected = *uncorrected = 0;
    *pending = (unsigned)VALUE(d, REMAP_PENDING), *failed = (unsigned)VALUE(d, REMAP_FAILED);
    return 0;
}
int nvmlDeviceGetMigMode(void *d, unsigned *current, unsigned *pending) {
    CALL(DEV(d));
    *current = *pending = (unsigned)VALUE(d, MIG);
    return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void *d, unsigned *count) { CALL(DEV(d)); *count = INSTANCES; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *d, unsigned position, void **instance) {
    CALL(DEV(d));
    if (!VALUE(d, MIG) || position >= (unsigned)ninstances[DEV(d)]) return 6;
    *instance = &instances[DEV(d)][position];
    return 0;
}
int nvmlDeviceGetGpuInstanceId(void *d, unsigned *id) { CALL(DEV(d)); *id = (unsigned)GI(d); return GI(d) < 0 ? INVALID : 0; }
int nvmlDeviceGetComputeInstanceId(void *d, unsigned *id) { CALL(DEV(d)); *id = (unsigned)((Device *)d)->ci; return 0; }
typedef struct {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type, result;
    union { unsigned ui; unsigned long long ull; } value;
} Field;
int nvmlDeviceGetFieldValues(void *d, int count, Field *fields) {
    CALL(DEV(d));
    for (int i = 0; i < count; i++) {
        fields[i].result = fields[i].id == 82 ? (unsigned)check(DEV(d), "NVML_FI_DEV_MEMORY_TEMP") : NOT_SUPPORTED;
        fields[i].type = 1, fields[i].value.ull = 0, fields[i].value.ui = (unsigned)VALUE(d, MEMORY_TEMPERATURE);
        if (fields[i].id == 91) fields[i].result = 0, fields[i].value.ui = (unsigned)VALUE(d, NVLINKS);
        if (fields[i].id == 52) fields[i].result = 0, fields[i].type = 3, fields[i].value.ull = VALUE(d, NVLINK_ERRORS);
    }
    return 0;
}

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } ProcessInfo;
static int running(int gpu, int gi, char kind, unsigned *count, ProcessInfo *infos) {
    unsigned room = *count, n = 0;
    for (int i = 0; i < nprocesses; i++)
        if (processes[i].gpu == gpu && processes[i].kind == kind && (gi < 0 || processes[i].gi == gi)) {
            if (n < room && infos)
                infos[n] = (ProcessInfo){processes[i].pid, processes[i].bytes, (unsigned)processes[i].gi, ~0u};
            n++;
        }
    *count = n;
    return n > room ? INSUFFICIENT_SIZE : 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, ProcessInfo *p) { CALL(DEV(d)); return running(DEV(d), GI(d), 'c', n, p); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *d, unsigned *n, ProcessInfo *p) { CALL(DEV(d)); return running(DEV(d), GI(d), 'g', n, p); }

int nvmlEventSetCreate(void **set) {
    CALL(-1);
    for (int i = 0; i < nxids; i++) last_xid = xids[i].number > last_xid ? xids[i].number : last_xid;
    *set = &last_xid;
    return 0;
}
int nvmlEventSetFree(void *set) { (void)set; CALL(-1); return 0; }
int nvmlDeviceGetSupportedEventTypes(void *d, unsigned long long *types) { CALL(DEV(d)); *types = 0x1f; return 0; }
int nvmlDeviceRegisterEvents(void *d, unsigned long long types, void *set) { (void)types, (void)set; CALL(DEV(d)); return 0; }
typedef struct { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } Event;
int nvmlEventSetWait_v2(void *set, Event *event, unsigned timeout_ms) {
    (void)set, (void)timeout_ms;
    CALL(-1);
    for (int i = 0; i < nxids; i++)
        if (xids[i].number > last_xid) {
            last_xid = xids[i].number;
            *event = (Event){&devices[xids[i].gpu], 8, xids[i].code, ~0u, ~0u};
            return 0;
        }
    return TIMEOUT;
}
