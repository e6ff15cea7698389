/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/holder.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "grpc/podresources.pb-c.h"

#define RESOURCE "nvidia.com/gpu"

/* kubelet's list of one pod whose container "main" has these devices; the packed bytes. */
static size_t pack(Podresources__V1__ContainerDevices **devices, size_t count, uint8_t *to)
{
    Podresources__V1__ContainerResources container = PODRESOURCES__V1__CONTAINER_RESOURCES__INIT;
    Podresources__V1__PodResources pod = PODRESOURCES__V1__POD_RESOURCES__INIT;
    Podresources__V1__ListPodResourcesResponse list =
        PODRESOURCES__V1__LIST_POD_RESOURCES_RESPONSE__INIT;
    Podresources__V1__ContainerResources *containers[] = {&container};
    Podresources__V1__PodResources *pods[] = {&pod};

    container.name = (char *)"main";
    container.n_devices = count;
    container.devices = devices;
    pod.name = (char *)"p";
    pod.namespace_ = (char *)"ns";
    pod.n_containers = 1;
    pod.containers = containers;
    list.n_pod_resources = 1;
    list.pod_resources = pods;
    return podresources__v1__list_pod_resources_response__pack(&list, to);
}

/* kubelet tells a container's devices in an entry for each NUMA node. */
static void devices_of_several_entries_are_one_containers(void **state)
{
    char *first[] = {(char *)"a::0"}, *second[] = {(char *)"b::0", (char *)"b::1"};
    Podresources__V1__ContainerDevices one = PODRESOURCES__V1__CONTAINER_DEVICES__INIT;
    Podresources__V1__ContainerDevices two = PODRESOURCES__V1__CONTAINER_DEVICES__INIT;
    Podresources__V1__ContainerDevices other = PODRESOURCES__V1__CONTAINER_DEVICES__INIT;
    Podresources__V1__ContainerDevices *devices[] = {&one, &other, &two};
    static const char *const ids[] = {"b::1", "a::0", "b::0"};
    struct holder holder = {.namespace = ""};
    uint8_t bytes[512];
    size_t len;

    (void)state;
    one.resource_name = two.resource_name = (char *)RESOURCE;
    other.resource_name = (char *)"acme.example/x";
    one.n_device_ids = other.n_device_ids = 1;
    one.device_ids = other.device_ids = first;
    two.n_device_ids = 2;
    two.device_ids = second;
    len = pack(devices, ARRAY_SIZE(devices), bytes);
    assert_int_equal(holder_of_list(bytes, len, RESOURCE, ids, 3, &holder), HOLDER_FOUND);
    assert_string_equal(holder.namespace, "ns");
    assert_string_equal(holder.pod, "p");
    assert_string_equal(holder.container, "main");

    /* Some of them: an init container's, which the list lacks. */
    for (size_t i = 0; i < 3; i++) {
        holder = (struct holder){.namespace = ""};
        assert_int_equal(holder_of_list(bytes, len, RESOURCE, ids + i, 1, &holder), HOLDER_FOUND);
        assert_string_equal(holder.pod, "p");
        assert_string_equal(holder.container, "");
    }
    assert_int_equal(holder_of_list(bytes, len, "nvidia.com/other", ids, 3, &holder), HOLDER_NONE);
    assert_int_equal(holder_of_list(bytes, len - 1, RESOURCE, ids, 3, &holder), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_of_several_entries_are_one_containers),
    };

    return cmocka_run_group_tests_name("plugin/holder", tests, NULL, NULL);
}
