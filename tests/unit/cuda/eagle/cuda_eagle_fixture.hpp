// An EAGLE draft of a fixture's last layer on whatever device the program is linked to.
#pragma once

#include <memory>
#include <utility>

#include "tests/unit/cuda/cuda_fixture.hpp"
#include "tests/unit/eagle/eagle_suite.hpp"

namespace paceline::testing {

/// Options of a draft with the fixture's part and its short list.
inline CudaOptions eagle_options(const EagleFixture& eagle, CudaOptions options = {}) {
    if (options.kv_slots == 0) options.kv_slots = 1024;
    options.heads.push_back({.tokens = eagle.part.tokens});
    options.eagle = eagle.part.spec;
    return options;
}

inline std::unique_ptr<EagleBackend> cuda_eagle(const EagleFixture& eagle,
                                                CudaOptions options = {}) {
    auto layer = make_cuda(eagle.part.file, eagle_options(eagle, std::move(options)));
    EagleLayer& steps = *layer->eagle_layer();
    return std::make_unique<EagleBackend>(std::move(layer), steps, eagle.part.spec.states());
}

}  // namespace paceline::testing
