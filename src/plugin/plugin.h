/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The device plugin as a whole: what its parts share.
 *
 * kubelet asks for devices before it can be known for which container (kubelet.h answers with a
 * name), and again when the container starts; then prestart.h finds the pod and writes the CDI
 * specification of that name. The cards are the vendor's (node/node_vendor.h), the grants are read
 * from the API server; what was handed out is on the disk (node/host.h), so that a restart of the
 * plugin changes nothing. Where CDI does not reach containers, the first question must be answered
 * in full (ordered.h).
 */

#include <limits.h>
#include <stdbool.h>
#include <uv.h>

#include "kube/client.h"
#include "kube/watch.h"
#include "node/node_vendor.h"
#include "nvml/watchdog.h"
#include "plugin/fitness.h"
#include "plugin/kubelet.h"
#include "plugin/pods.h"
#include "plugin/way.h"

enum {
    NODE_NAME_SIZE = 256,
};

struct plugin_options {
    char node_name[NODE_NAME_SIZE];
    const char *kubeconfig; /* NULL: as kube_config_load() finds it */
    const char *device_config_file, *node_config_file;
    const char *hook_path, *cdi_dir;
    const char *kubelet_socket, *pod_resources_socket;
    bool keep_trying;           /* where the cards can't be found; false: the plugin ends */
    const char *runtime_socket; /* the container runtime's; NULL: where it usually is */
    const char *ready_file;     /* exists while the plugin is registered with kubelet; NULL: none */
    bool assume_cdi;            /* the runtime takes CDI devices, whatever it says */
    unsigned strategies;        /* enum way_strategy; 0: whichever the node can do */
    bool node_capacity;         /* the Node shows the cards' memory and cores */
};

/* The Node's condition that says whether containers get the driver. */
#define CONDITION_TYPE "hami.io/DriverReady"

struct plugin {
    uv_loop_t *loop;
    const struct plugin_options *options;
    struct node_host host;

    const struct node_vendor *vendor;
    void *node; /* the vendor's; NULL: not started */
    struct node_offer offer;

    struct cards cards;
    bool has_cards;         /* they were found once */
    struct error why_none;  /* why they were not */
    struct watchdog health; /* asks the driver */
    struct watchdog watch;  /* waits for what befalls cards */
    bool watches;           /* it has begun */
    int watch_result;
    struct error watch_error;
    char silence[CARD_WHY_SIZE]; /* the driver hangs: why no card is healthy; "" else */
    struct cards asked,
        found; /* the thread's: the cards as they were known, and as it found them */
    int found_result;
    struct error found_error;

    struct kube_client *kube;
    struct kube_watch *pod_watch, *node_watch;
    struct pods *pods;
    bool listed;     /* a list of the pods was complete once */
    bool parts_full; /* of cards: there are too many, which was said */
    bool parts_wait; /* another plugin still makes and ends parts of cards */
    struct serving {
        struct plugin *plugin;
        struct kubelet *kubelet; /* NULL: not begun */
        bool is_ready;
    } servings[NODE_RESOURCES_MAX]; /* one for each resource */
    bool is_ready;                  /* all of them are */
    uv_timer_t gc_timer, trim_timer, finish_timer;
    uint64_t finish_until_ms; /* by the loop's clock */
    uint64_t trims; /* regions that were cut because their containers had made them longer */
    uv_signal_t signals[3];
    bool again; /* it ends to begin anew */

    struct prestart *prestarts;
    struct ordered *ordered; /* allocations under way, the first comes first */
    enum way way;            /* by which containers get their devices from now on */
    struct lock_seen {
        char *value;      /* of the node's lock; NULL: there is none */
        char version[64]; /* of the Node that had it */
        char tried[64];   /* the version at which it was to be removed last */
        struct kube_request *request;
    } lock;
    struct registration {
        struct registered_note {
            const char *key;
            char *known;  /* the node's annotation, as the API server has it; NULL: none */
            char *wanted; /* as it should be; NULL: none */
            char *sent;   /* as it was written last */
        } notes[NODE_NOTES_MAX];
        size_t count;
        bool seen;       /* what is known is from the server */
        int64_t sent_ns; /* 0: never */
        struct kube_request *request;
    } registration;
    struct phase *phases; /* patches under way */

    struct gate {
        struct fitness fitness;
        enum fitness_outcome outcome; /* 0: not known yet */
        struct error why;
        bool silence_said; /* it was logged that the runtime does not answer */
        struct grpc_request *asking_runtime;
        struct kube_request *asking_node;
        uv_timer_t timer;
    } gate;
    struct conditions {
        bool seen; /* the Node's conditions were read */
        struct node_condition written, sent, said;
        struct kube_request *request;
    } conditions;
    struct kube_request *capacity;
    char node_uid[64]; /* "": not seen yet */
    bool ending;
};

/*
 * plugin.c. own: the vendor's own options. Serves until a signal: 0, or 1 when that asked for a new
 * beginning (SIGHUP), with the configuration as it is by then. A negative errno, which is logged,
 * where it can't begin.
 */
int plugin_run(const struct plugin_options *options, const struct node_vendor *vendor,
               const void *own);
/* health.c: asks for the cards every few seconds, and as soon as something befalls one. */
void plugin_health_start(struct plugin *plugin);
/* Begins to wait for what befalls cards, once they were found. */
void plugin_health_watch(struct plugin *plugin);
void plugin_health_stop(struct plugin *plugin);
/* Logs, once, that a pod's annotation was changed after it was given its devices. */
void plugin_say_altered(const struct plugin *plugin, struct node_pod *pod);

/* parts.c: says which parts of cards there are to be, whenever that may have changed. */
void plugin_parts_update(struct plugin *plugin);

/* Takes up resources that the cards found just now have brought. */
void plugin_offer(struct plugin *plugin);

/* Registers with kubelet, if there are cards and the gate is open. */
void plugin_serve(struct plugin *plugin);

/* gate.c: whether CDI devices reach containers on this node. */
void plugin_gate_start(struct plugin *plugin);
void plugin_gate_on_timer(uv_timer_t *timer);
void plugin_gate_stop(struct plugin *plugin);

/* condition.c: the Node's condition CONDITION_TYPE. */
void plugin_condition_check(struct plugin *plugin);
void plugin_condition_seen(struct plugin *plugin, yyjson_val *status);
void plugin_condition_stop(struct plugin *plugin);

/* capacity.c: the cards' memory and cores as the Node's capacity. */
void plugin_capacity_write(struct plugin *plugin);
void plugin_capacity_stop(struct plugin *plugin);

/* register.c: the annotations of the node. */
void plugin_register(struct plugin *plugin);
void plugin_register_seen(struct plugin *plugin, yyjson_val *annotations);
void plugin_register_stop(struct plugin *plugin);

/* phase.c: tells the API server when all containers of a pod have their devices. */
void plugin_phase_check(struct plugin *plugin, struct node_pod *pod);
/* Tells it that the pod's allocation failed. */
void plugin_phase_fail(struct plugin *plugin, struct node_pod *pod);
void plugin_phase_stop(struct plugin *plugin);

/* unlock.c: the Node as it is now; removes its lock if it names a pod whose allocations are over.
 */
void plugin_unlock_seen(struct plugin *plugin, yyjson_val *metadata);
void plugin_unlock_check(struct plugin *plugin);
void plugin_unlock_stop(struct plugin *plugin);

/* gc.c: removes the files of pods that are gone. */
void plugin_gc_pod(struct plugin *plugin, struct node_pod *pod);
/* The pod is gone from the API server: removes its files, or marks it as leaving until kubelet has
 * ended its containers. */
void plugin_pod_gone(struct plugin *plugin, struct node_pod *pod);
void plugin_pods_leave(struct plugin *plugin);
void plugin_gc_all(struct plugin *plugin);
/* Cuts regions' files that containers made longer. */
void plugin_trim(struct plugin *plugin);
/* adopt.c: from the disk the pods that an earlier run of the plugin knew... */
void plugin_adopt_pods(struct plugin *plugin);
/* ...and, of the pods that are known by now, the containers that have their devices. */
void plugin_adopt_containers(struct plugin *plugin);
