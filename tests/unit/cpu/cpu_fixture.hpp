// What the tests of the CPU backend share: fixtures opened, backends made, texts at random.
#pragma once

#include <memory>
#include <random>
#include <string>

#include <doctest/doctest.h>

#include "model/cpu/cpu_backend.hpp"
#include "tests/support/parity.hpp"
#include "tests/support/source_tree.hpp"

namespace paceline::testing {

inline ModelFile open_fixture(const std::string& name) {
    Result<ModelFile> file = ModelFile::open(fixtures() + "/models/" + name + ".gguf");
    REQUIRE_MESSAGE(file.ok(), name);
    return std::move(file).value();
}

inline std::unique_ptr<CpuBackend> make_backend(const ModelFile& file, CpuOptions options) {
    if (options.kv_slots == 0) options.kv_slots = 1024;
    Result<std::unique_ptr<CpuBackend>> backend = make_cpu_backend(file, options);
    REQUIRE_MESSAGE(backend.ok(), (backend.ok() ? std::string{} : backend.error().what));
    return std::move(backend).value();
}

inline std::vector<TokenId> random_tokens(std::mt19937& rng, int vocab_size, std::size_t count) {
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens)
        token = static_cast<TokenId>(rng() % static_cast<unsigned>(vocab_size));
    return tokens;
}

/// The instruction sets this machine can run.
inline std::vector<Isa> runnable_isas() {
    std::vector<Isa> isas;
    for (Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512}) {
        if (supports(isa)) isas.push_back(isa);
    }
    return isas;
}

}  // namespace paceline::testing
