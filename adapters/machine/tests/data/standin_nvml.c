/* A stand-in for NVIDIA's libnvidia-ml.so.1 with the calls that the inventory makes. It proves the
 * protocol around the library, not the library. STANDIN in the environment says how it behaves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NOT_LOADED = 9, LOST = 15 };

typedef struct { int index, part; } Device;
static Device gpus[8], parts[2];
static const int buses[8] = {0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf};

static int behaves(const char *way) {
  const char *is = getenv("STANDIN");
  return is && strcmp(is, way) == 0;
}

int nvmlInit_v2(void) {
  if (behaves("hang")) for (;;) pause();
  if (behaves("crash")) *(volatile int *)0 = 1;
  if (behaves("mumble")) { printf("{\"what\":"); fflush(stdout); _exit(0); }
  return behaves("refuse") ? NOT_LOADED : SUCCESS;
}
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "stand-in"; }

static int say(char *to, unsigned length, const char *text) {
  if (strlen(text) >= length) return TOO_SMALL;
  strcpy(to, text);
  return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *to, unsigned length) { return say(to, length, "535.129.03"); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12020; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) { *count = behaves("mig") ? 1 : 8; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
  if (index >= 8) return INVALID;
  if (behaves("lost") && index == 3) return LOST;
  gpus[index] = (Device){(int)index, -1};
  *device = &gpus[index];
  return SUCCESS;
}

typedef struct {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char address[32];
} Pci;
int nvmlDeviceGetPciInfo_v3(Device *device, Pci *pci) {
  memset(pci, 0, sizeof *pci);
  int bus = behaves("mig") ? 0x27 : buses[device->index];
  snprintf(pci->address, sizeof pci->address, "00000000:%02X:00.0", bus);
  return SUCCESS;
}
int nvmlDeviceGetUUID(Device *device, char *to, unsigned length) {
  char text[80];
  const char *kind = device->part < 0 ? "GPU" : "MIG";
  int number = device->part < 0 ? device->index : 0x40 + device->part;
  snprintf(text, sizeof text, "%s-%08x-0b1c-4d2e-8f30-a1b2c3d4e5%02x", kind, 0x5f1e0a10 + number, number);
  return say(to, length, text);
}
int nvmlDeviceGetName(Device *device, char *to, unsigned length) {
  if (device->part == 0) return say(to, length, "NVIDIA H100 PCIe MIG 3g.40gb");
  if (device->part == 1) return say(to, length, "NVIDIA H100 PCIe MIG 1g.10gb");
  return say(to, length, behaves("mig") ? "NVIDIA H100 PCIe" : "NVIDIA H100 80GB HBM3");
}
int nvmlDeviceGetSerial(Device *device, char *to, unsigned length) {
  char text[32];
  snprintf(text, sizeof text, "%llu", 1650522003820ull + (unsigned)device->index);
  return say(to, length, text);
}
int nvmlDeviceGetMinorNumber(Device *device, unsigned *minor) { *minor = (unsigned)device->index; return SUCCESS; }

typedef struct {
  unsigned version;
  unsigned long long total, reserved, free, used;
} Memory;
int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory *memory) {
  (void)device;
  memory->total = 85520809984ull;
  memory->reserved = memory->free = memory->used = 0;
  return SUCCESS;
}
int nvmlDeviceGetNvLinkState(Device *device, unsigned link, unsigned *active) {
  (void)device;
  if (behaves("mig")) return NOT_SUPPORTED;
  if (link >= 18) return INVALID;
  *active = 1;
  return SUCCESS;
}

int nvmlDeviceGetMigMode(Device *device, unsigned *now, unsigned *next) {
  (void)device;
  *now = *next = (unsigned)behaves("mig");
  return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) { (void)device; *count = 7; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **part) {
  (void)device;
  /* Instances need not be numbered without gaps. */
  if (index != 0 && index != 4) return NOT_FOUND;
  int at = index == 0 ? 0 : 1;
  parts[at] = (Device){0, at};
  *part = &parts[at];
  return SUCCESS;
}
typedef struct {
  unsigned processors, copy, decoders, encoders, jpeg, flow, gpu_slices, compute_slices;
  unsigned long long memory_mb;
} Attributes;
int nvmlDeviceGetAttributes_v2(Device *part, Attributes *told) {
  memset(told, 0, sizeof *told);
  told->gpu_slices = told->compute_slices = part->part == 0 ? 3 : 1;
  told->memory_mb = part->part == 0 ? 40448 : 9856;
  return SUCCESS;
}

typedef struct {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
} Process;
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *processes) {
  unsigned found = device->index == 0 && !behaves("mig") ? 1 : 0;
  if (*count < found) { *count = found; return TOO_SMALL; }
  if (found) processes[0] = (Process){4711, 1ull << 30, ~0u, ~0u};
  *count = found;
  return SUCCESS;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *device, unsigned *count, Process *processes) {
  (void)device; (void)processes;
  *count = 0;
  return SUCCESS;
}
