// What the tests of the CPU backend share beside the suite's fixture: how a backend is made.
#pragma once

#include <memory>
#include <string>

#include "model/cpu/cpu_backend.hpp"
#include "tests/unit/backend/fixture.hpp"

namespace paceline::testing {

inline std::unique_ptr<CpuBackend> make_backend(const ModelFile& file, CpuOptions options) {
    if (options.kv_slots == 0) options.kv_slots = 1024;
    Result<std::unique_ptr<CpuBackend>> backend = make_cpu_backend(file, options);
    REQUIRE_MESSAGE(backend.ok(), (backend.ok() ? std::string{} : backend.error().what));
    return std::move(backend).value();
}

/// The instruction sets this machine can run.
inline std::vector<Isa> runnable_isas() {
    std::vector<Isa> isas;
    for (Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Amx}) {
        if (supports(isa)) isas.push_back(isa);
    }
    return isas;
}

}  // namespace paceline::testing
