// What the typed suite is told about a backend: how one is made, and how large its tests may be.
//
// Every case of this folder is a template over traits of a backend: CpuTraits, CudaTraits or
// ReferenceTraits (cpu_traits.hpp, ... in the folder of the program that runs them). The traits
// make a backend of a What, ignoring the fields that it does not have, and hold the tables of this
// file that a case runs over; a slow backend has shorter ones. What a promise says is never in the
// traits.
//
//     make(file, what)          a backend; fails the test if it is refused
//     refused(file, what)       the error with which such a backend is refused (CPU and CUDA)
//     isas()                    builds with bits of their own; {nullopt} where there is one
//     kHasDtypes                whether Dtype changes anything
//     kSettings, kWays          row_suite.hpp: texts, and how they are fed
//     kPrefixes, kPrefixBatch, kNodeStep, kChainTokens, kPairTokens      row_suite.hpp: sizes
//     kGoldenTolerance, kNear   golden_suite.hpp
//     kBuilds                   head_suite.hpp, adapter_suite.hpp: rows together
//     kHeadRows, kHeadRowStep, kNarrowKv, kAdapterTokens, kAdapterTolerance   the same two
//     kCancelRounds, kStaleBuilds, kStaleRounds, kQuestionsMin          cancel_suite.hpp
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "model/adapter_spec.hpp"
#include "model/backend.hpp"
#include "model/cpu/cpu_options.hpp"

namespace paceline::testing {

struct What {
    Dtype dtype = Dtype::Auto;
    std::optional<KvType> kv{};  // nothing: what the backend usually has
    int first_layer = 0;
    int last_layer = -1;
    std::int32_t kv_slots = 0;  // 0: 512 at least
    bool final_head = false;
    std::vector<HeadSpec> heads{};
    std::optional<AdapterSpec> adapter{};
    std::optional<int> rows_max{};
    int threads = 1;
    std::optional<Isa> isa{};
    bool graphs = true;
    SublayerMask skipped{};
};

/// A model, how it is stored, and how long a text of it is fed.
struct Setting {
    const char* fixture;
    Dtype dtype;
    KvType kv;
    std::size_t tokens = 0;
};

/// How a text is fed: rows of a call, slots, and what must not change a bit.
struct Way {
    int batch;
    bool scattered;  // slots; otherwise at home
    int rows_max;
    int threads = 1;
    bool graphs = true;
};

/// How a backend is made that must have the bits of any other.
struct Build {
    int rows_max;
    int threads = 1;
};

/// The most that the logits of a narrower type are off those of float32.
struct Near {
    Dtype dtype;
    KvType kv;
    double bound;
};

}  // namespace paceline::testing
