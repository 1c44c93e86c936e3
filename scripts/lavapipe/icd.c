// A Vulkan driver that is Mesa's lavapipe under the ids of SwiftShader: of the drivers that compute on the CPU, Chromium takes only that one.
// It hands everything on to the library that RILLM_LAVAPIPE names.
//
// The interface between loader and driver: https://github.com/KhronosGroup/Vulkan-Loader/blob/main/docs/LoaderDriverInterface.md

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*Function)(void);
typedef Function (*GetFunction)(void *instance, const char *name);

// How a VkPhysicalDeviceProperties begins.
struct Properties {
    uint32_t api_version, driver_version, vendor, device;
};

// A VkPhysicalDeviceProperties2.
struct Properties2 {
    uint32_t type;
    void *next;
    struct Properties properties;
};

static const uint32_t SWIFTSHADER_VENDOR = 0x1AE0;
static const uint32_t SWIFTSHADER_DEVICE = 0xC0DE;

static void *mesa(const char *name) {
    static void *library;
    if (library == NULL) library = dlopen(getenv("RILLM_LAVAPIPE"), RTLD_NOW | RTLD_LOCAL);
    return library == NULL ? NULL : dlsym(library, name);
}

static void (*of_mesa)(void *device, struct Properties *properties);
static void (*of_mesa_2)(void *device, struct Properties2 *properties);

static void rename_device(struct Properties *properties) {
    properties->vendor = SWIFTSHADER_VENDOR;
    properties->device = SWIFTSHADER_DEVICE;
}

static void get_properties(void *device, struct Properties *properties) {
    of_mesa(device, properties);
    rename_device(properties);
}

static void get_properties_2(void *device, struct Properties2 *properties) {
    of_mesa_2(device, properties);
    rename_device(&properties->properties);
}

static Function ours(const char *name, Function function) {
    if (function == NULL) return NULL;
    if (strcmp(name, "vkGetPhysicalDeviceProperties") == 0) {
        of_mesa = (void (*)(void *, struct Properties *))function;
        return (Function)get_properties;
    }
    if (strcmp(name, "vkGetPhysicalDeviceProperties2") == 0 || strcmp(name, "vkGetPhysicalDeviceProperties2KHR") == 0) {
        of_mesa_2 = (void (*)(void *, struct Properties2 *))function;
        return (Function)get_properties_2;
    }
    return function;
}

Function vk_icdGetInstanceProcAddr(void *instance, const char *name) {
    GetFunction get = (GetFunction)mesa("vk_icdGetInstanceProcAddr");
    return get == NULL ? NULL : ours(name, get(instance, name));
}

Function vk_icdGetPhysicalDeviceProcAddr(void *instance, const char *name) {
    GetFunction get = (GetFunction)mesa("vk_icdGetPhysicalDeviceProcAddr");
    return get == NULL ? NULL : ours(name, get(instance, name));
}

int32_t vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version) {
    int32_t (*negotiate)(uint32_t *) = (int32_t (*)(uint32_t *))mesa("vk_icdNegotiateLoaderICDInterfaceVersion");
    const int32_t VK_ERROR_INCOMPATIBLE_DRIVER = -9;
    return negotiate == NULL ? VK_ERROR_INCOMPATIBLE_DRIVER : negotiate(version);
}
