// What compiler built the kernels, and which instruction sets of the processor it was allowed to use.

extern "C" const char* sbd_built_for() {
  return
#ifdef __clang__
      "clang " __clang_version__
#else
      "g++ " __VERSION__
#endif
      " for "
#ifdef __x86_64__
      "x86_64"
#elif defined(__aarch64__)
      "aarch64"
#else
      "another processor"
#endif
#ifdef __AVX2__
      " avx2"
#endif
#ifdef __AVX512F__
      " avx512f"
#endif
#ifdef __AVX512BF16__
      " avx512_bf16"
#endif
#ifdef __AMX_BF16__
      " amx_bf16"
#endif
#ifdef __ARM_FEATURE_BF16
      " bf16"
#endif
#ifdef __ARM_FEATURE_SVE
      " sve"
#endif
      ;
}
