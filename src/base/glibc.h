/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * libvgpu.so is loaded into programs of any glibc from 2.17 on, so it must not ask for symbols that
 * are newer. glibc 2.34 moved dlopen and the threads into libc.so.6 under new versions and kept the
 * old ones: these lines ask for the old ones. On an older glibc they are found in libdl and
 * libpthread, which libvgpu names as needed. Included by every file that libvgpu links and that
 * calls one of them.
 */

#include <features.h> /* __GLIBC__, also where this is the first header */

#if defined(__GLIBC__) && defined(__x86_64__)
#define GLIBC_OLD "GLIBC_2.2.5"
#define GLIBC_DLADDR1 "GLIBC_2.3.3"
#elif defined(__GLIBC__) && defined(__aarch64__)
#define GLIBC_OLD "GLIBC_2.17"
#define GLIBC_DLADDR1 "GLIBC_2.17"
#endif

#ifdef GLIBC_OLD
__asm__(".symver dlopen, dlopen@" GLIBC_OLD);
__asm__(".symver dlclose, dlclose@" GLIBC_OLD);
__asm__(".symver dladdr, dladdr@" GLIBC_OLD);
__asm__(".symver dladdr1, dladdr1@" GLIBC_DLADDR1);
__asm__(".symver pthread_attr_setstacksize, pthread_attr_setstacksize@" GLIBC_OLD);
__asm__(".symver pthread_create, pthread_create@" GLIBC_OLD);
__asm__(".symver pthread_detach, pthread_detach@" GLIBC_OLD);
__asm__(".symver pthread_key_create, pthread_key_create@" GLIBC_OLD);
__asm__(".symver pthread_mutex_trylock, pthread_mutex_trylock@" GLIBC_OLD);
__asm__(".symver pthread_once, pthread_once@" GLIBC_OLD);
__asm__(".symver pthread_rwlock_init, pthread_rwlock_init@" GLIBC_OLD);
__asm__(".symver pthread_rwlock_rdlock, pthread_rwlock_rdlock@" GLIBC_OLD);
__asm__(".symver pthread_rwlock_unlock, pthread_rwlock_unlock@" GLIBC_OLD);
__asm__(".symver pthread_rwlock_wrlock, pthread_rwlock_wrlock@" GLIBC_OLD);
__asm__(".symver pthread_setspecific, pthread_setspecific@" GLIBC_OLD);
__asm__(".symver pthread_sigmask, pthread_sigmask@" GLIBC_OLD);
__asm__(".symver sem_init, sem_init@" GLIBC_OLD);
#endif
