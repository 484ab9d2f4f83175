/* What the probe may call of a driver, and how often it asked. */
#include <stddef.h>
#include <string.h>

int current = 0, asked = 0, capture_mode = 0;

int cuCtxGetCurrent(void **context) { *context = current ? &current : NULL; return 0; }
int cuCtxGetDevice(int *device) { *device = 40; return current ? 0 : 201; }
int cuMemGetInfo_v2(size_t *free, size_t *total) {
    asked++; *free = 111; *total = 222;
    return capture_mode == 2 ? 0 : 900; /* as if a graph were being captured, which only "relaxed" survives */
}
int cuThreadExchangeStreamCaptureMode(int *mode) { int before = capture_mode; capture_mode = *mode; *mode = before; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = 40 + ordinal; return ordinal < 2 ? 0 : 101; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { memset(uuid, device, 16); uuid[15] = 0xff; return 0; }
int cuDeviceGetName(char *name, int size, int device) { (void)device; strncpy(name, "simulated MIG 1g", size); return 0; }
int cuDeviceTotalMem_v2(size_t *total, int device) { (void)device; *total = 222; return 0; }
