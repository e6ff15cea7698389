/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Entry points that have to leave their arguments, or their return address, untouched.
 *
 * dlsym, dlvsym   libc tells RTLD_NEXT's caller by the return address. Names that are none of ours go
 *                 on to libc by a jump, so that it sees the true caller. For our names C takes over,
 *                 with the caller as one more argument.
 * UNKNOWN name    stands in for an export of the driver's that nobody knows: whatever its arguments are,
 *                 a number comes back, or the driver's own function is jumped to where the policy
 *                 allows it.
 */

#if defined(__x86_64__)

    .text
    .balign 64 /* meson.build says why */

/* rdi handle, rsi name, rdx version (dlvsym) */
    .macro LOOKUP name, libc, ours
    .globl \name
    .type \name, @function
\name:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    movq %rsi, %rdi
    call lookup_is_ours
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testl %eax, %eax
    jnz 1f
    movq \libc(%rip), %rax
    jmpq *%rax
1:
    movq (%rsp), %rcx
    jmp \ours
    .cfi_endproc
    .size \name, . - \name
    .endm

    LOOKUP dlsym, libc_dlsym, lookup_symbol
    LOOKUP dlvsym, libc_dlvsym, lookup_version

/* All integer and floating argument registers are kept around the question. */
    .type unknown_common, @function
unknown_common:
    .cfi_startproc
    pushq %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_offset %rbp, -16
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    pushq %rdi
    pushq %rsi
    pushq %rdx
    pushq %rcx
    pushq %r8
    pushq %r9
    subq $128, %rsp
    movups %xmm0, 0(%rsp)
    movups %xmm1, 16(%rsp)
    movups %xmm2, 32(%rsp)
    movups %xmm3, 48(%rsp)
    movups %xmm4, 64(%rsp)
    movups %xmm5, 80(%rsp)
    movups %xmm6, 96(%rsp)
    movups %xmm7, 112(%rsp)
    movl %eax, %edi
    call refuse_or_pass
    movups 0(%rsp), %xmm0
    movups 16(%rsp), %xmm1
    movups 32(%rsp), %xmm2
    movups 48(%rsp), %xmm3
    movups 64(%rsp), %xmm4
    movups 80(%rsp), %xmm5
    movups 96(%rsp), %xmm6
    movups 112(%rsp), %xmm7
    addq $128, %rsp
    popq %r9
    popq %r8
    popq %rcx
    popq %rdx
    popq %rsi
    popq %rdi
    popq %rbp
    .cfi_def_cfa %rsp, 8
    testq %rax, %rax
    jz 1f
    jmpq *%rax
1:
    movl $801, %eax
    ret
    .cfi_endproc
    .size unknown_common, . - unknown_common

    .macro UNKNOWN name
    .globl \name
    .type \name, @function
\name:
    .cfi_startproc
    endbr64
    movl $UNKNOWN_NUMBER, %eax
    jmp unknown_common
    .cfi_endproc
    .size \name, . - \name
    .set UNKNOWN_NUMBER, UNKNOWN_NUMBER + 1
    .endm

#elif defined(__aarch64__)

    .text
    .balign 64 /* meson.build says why */

/* x0 handle, x1 name, x2 version (dlvsym) */
    .macro LOOKUP name, libc, ours
    .globl \name
    .type \name, %function
\name:
    .cfi_startproc
    hint #34 /* bti c */
    stp x29, x30, [sp, #-48]!
    .cfi_def_cfa_offset 48
    .cfi_offset x29, -48
    .cfi_offset x30, -40
    stp x0, x1, [sp, #16]
    str x2, [sp, #32]
    mov x0, x1
    bl lookup_is_ours
    mov w9, w0
    ldp x0, x1, [sp, #16]
    ldr x2, [sp, #32]
    ldp x29, x30, [sp], #48
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    cbnz w9, 1f
    adrp x16, \libc
    ldr x16, [x16, #:lo12:\libc]
    br x16
1:
    mov x3, x30
    b \ours
    .cfi_endproc
    .size \name, . - \name
    .endm

    LOOKUP dlsym, libc_dlsym, lookup_symbol
    LOOKUP dlvsym, libc_dlvsym, lookup_version

    .type unknown_common, %function
unknown_common:
    .cfi_startproc
    stp x29, x30, [sp, #-208]!
    .cfi_def_cfa_offset 208
    .cfi_offset x29, -208
    .cfi_offset x30, -200
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    stp q0, q1, [sp, #80]
    stp q2, q3, [sp, #112]
    stp q4, q5, [sp, #144]
    stp q6, q7, [sp, #176]
    mov w0, w16
    bl refuse_or_pass
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldp q0, q1, [sp, #80]
    ldp q2, q3, [sp, #112]
    ldp q4, q5, [sp, #144]
    ldp q6, q7, [sp, #176]
    ldp x29, x30, [sp], #208
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    cbz x16, 1f
    br x16
1:
    mov w0, #801
    ret
    .cfi_endproc
    .size unknown_common, . - unknown_common

    .macro UNKNOWN name
    .globl \name
    .type \name, %function
\name:
    .cfi_startproc
    hint #34 /* bti c */
    mov w16, #UNKNOWN_NUMBER
    b unknown_common
    .cfi_endproc
    .size \name, . - \name
    .set UNKNOWN_NUMBER, UNKNOWN_NUMBER + 1
    .endm

#else
#error "no entry points for this processor yet"
#endif

/* UNKNOWN_MAX in real.h. */
    .set UNKNOWN_NUMBER, 0
    UNKNOWN unknown_0
    UNKNOWN unknown_1
    UNKNOWN unknown_2
    UNKNOWN unknown_3
    UNKNOWN unknown_4
    UNKNOWN unknown_5
    UNKNOWN unknown_6
    UNKNOWN unknown_7

    .section .note.GNU-stack, "", %progbits
