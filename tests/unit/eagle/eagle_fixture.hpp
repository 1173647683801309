// An EAGLE draft of a fixture's last layer for tests: its part as a file, the backend on the CPU's
// kernels, and what its plain reference makes of a text.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/cpu/cpu_backend.hpp"
#include "model/eagle/eagle_backend.hpp"
#include "model/reference/eagle.hpp"
#include "model/weights/trained_parts.hpp"
#include "tests/unit/backend/fixture.hpp"
#include "tests/unit/weights/safetensors_builder.hpp"

namespace paceline::testing {

inline constexpr HeadId kEagleHead{1};

/// Every token but each third one.
inline std::vector<TokenId> listed_tokens(int vocab_size) {
    std::vector<TokenId> tokens;
    for (TokenId t = 0; t < vocab_size; ++t) {
        if (t % 3 != 1) tokens.push_back(t);
    }
    return tokens;
}

/// The part of a target that is open, in a folder of its own.
struct EagleFixture {
    ModelFile target;
    test::TestFolder folder = {};
    EaglePart part;

    explicit EagleFixture(const std::string& name, const std::vector<int>& layers = {})
        : target{open_fixture(name)}, part{open(target, folder, layers)} {}

    static EaglePart open(const ModelFile& target,
                          const test::TestFolder& folder,
                          const std::vector<int>& layers) {
        const std::string path = (folder.path() / "eagle.safetensors").string();
        test::eagle_of(target, listed_tokens(target.config().vocab_size), layers).write(path);
        Result<EaglePart> opened = open_eagle_part(path, target);
        REQUIRE_MESSAGE(opened.ok(), (opened.ok() ? std::string{} : opened.error().what));
        return std::move(opened).value();
    }

    [[nodiscard]] std::unique_ptr<EagleBackend> backend(CpuOptions options = {}) const {
        if (options.kv_slots == 0) options.kv_slots = 1024;
        options.heads.push_back({.tokens = part.tokens});
        Result<std::unique_ptr<CpuBackend>> layer = make_cpu_backend(part.file, options);
        REQUIRE_MESSAGE(layer.ok(), (layer.ok() ? std::string{} : layer.error().what));
        return std::make_unique<EagleBackend>(std::move(layer).value(), part.spec);
    }

    /// Outputs [tokens, dim] of the reference.
    [[nodiscard]] std::vector<float> plain(const std::vector<TokenId>& tokens,
                                           const std::vector<std::vector<float>>& states) const {
        ReferenceBackend layer{part.file, {.kv_slots = static_cast<std::int32_t>(tokens.size())}};
        return reference::eagle_outputs(layer, part.spec, tokens, states);
    }

    /// States of a target at one in `one_in` of `count` positions, at random; 0: at none.
    [[nodiscard]] std::vector<std::vector<float>> some_states(std::mt19937& random,
                                                              std::size_t count,
                                                              unsigned one_in) const {
        std::vector<std::vector<float>> states(count);
        const std::size_t width =
            part.spec.states() * static_cast<std::size_t>(target.config().dim);
        for (std::vector<float>& each : states) {
            if (one_in != 0 && random() % one_in == 0)
                each = normal_numbers(random, width, 0.0F, 2.0F);
        }
        return states;
    }
};

}  // namespace paceline::testing
