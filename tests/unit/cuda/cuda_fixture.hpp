// What the tests of the CUDA backend share: a backend on whatever device the program is linked to.
#pragma once

#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "model/cuda/cuda_backend.hpp"
#include "tests/unit/cpu/cpu_fixture.hpp"

namespace paceline::testing {

inline std::unique_ptr<CudaBackend> make_cuda(const ModelFile& file, CudaOptions options) {
    if (options.kv_slots == 0) options.kv_slots = 512;
    Result<std::unique_ptr<CudaBackend>> backend = make_cuda_backend(file, options);
    REQUIRE_MESSAGE(backend.ok(), (backend.ok() ? std::string{} : backend.error().what));
    return std::move(backend).value();
}

/// The error with which `file` is refused.
inline Error refused(const ModelFile& file, CudaOptions options) {
    if (options.kv_slots == 0) options.kv_slots = 64;
    const Result<std::unique_ptr<CudaBackend>> backend = make_cuda_backend(file, options);
    REQUIRE_FALSE(backend.ok());
    return backend.error();
}

}  // namespace paceline::testing
