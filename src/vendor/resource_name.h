/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which names a device's resource may have. Kubernetes calls such resources extended: a container
 * may ask for no other that a plugin or an agent brings, and kubelet takes no other from them.
 */

/*
 * NULL, or what is wrong: as IsExtendedResourceName() of Kubernetes' pkg/apis/core/v1/helper, which
 * wants a domain that is not Kubernetes' own, and a name behind it that stays a qualified one with
 * "requests." in front, as a ResourceQuota writes it.
 */
const char *resource_name_check(const char *name);
