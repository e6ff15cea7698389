/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The judge of cluster_random_test: recounts from the pods' annotations, with a reader of its own.
 * Aborts if more is granted of a card than it has, in bound pods and binds under way together.
 */
void judge_grants(void);
