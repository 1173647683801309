// Parity: runs any Backend over the sequences of tests/fixtures/models and compares its logits
// with those of transformers, or with those of another backend. bench/parity does the same with
// real models.
//
// The error of a logit is relative to its row: |got - want| / max over the row of |want|. A
// fixture that cannot be read ends the program: it is part of the source tree.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/backend.hpp"

namespace paceline::testing {

/// What transformers says about one fixture (README.md beside them says how it was made).
struct Golden {
    std::string name;        // "llama-f32"
    std::string model_path;  // of the GGUF
    int vocab_size = 0;
    std::vector<TokenId> tokens;
    std::vector<float> logits;          // [tokens, vocab_size]
    std::vector<TokenId> argmax;        // [tokens]
    std::vector<TokenId> continuation;  // what follows `tokens`, greedily
    double continuation_margin = 0.0;   // least relative lead of a winner in the continuation
};

/// The fixtures that tests/fixtures/models/make_tiny_models.py makes.
[[nodiscard]] std::vector<std::string> golden_names();

/// STEM.golden.json and STEM.golden.f32 of any folder; the model is looked for beside them.
/// Errors: BadFile, naming file and field.
[[nodiscard]] Result<Golden> read_golden(const std::string& stem);

/// `fixtures` is the folder tests/fixtures (fixtures() of source_tree.hpp).
[[nodiscard]] Golden load_golden(const std::string& fixtures, const std::string& name);

/// Slots 0, 1, 2, ...: the key of position p in slot p, its home.
[[nodiscard]] std::vector<KvSlot> home_slots(std::size_t count);

/// `count` different slots below `kv_slots` in an order that has no system but is always the same.
[[nodiscard]] std::vector<KvSlot> scattered_slots(std::size_t count, std::int32_t kv_slots);

/// The row of `position` in a sequence whose position p lies in slots[p], through the whole of
/// `backend`'s segment. `slots` must outlive the row.
[[nodiscard]] Row sequence_row(const Backend& backend,
                               TokenId token,
                               Position position,
                               std::span<const KvSlot> slots);

/// Logits [tokens, vocab_size] of the sequence, fed in batches of `batch_rows` rows: 1 is row by
/// row, tokens.size() one chunk. `segments` are chained and together the whole model; position p
/// goes to slots[p] in all of them.
[[nodiscard]] std::vector<float> sequence_logits(std::span<Backend* const> segments,
                                                 std::span<const TokenId> tokens,
                                                 int batch_rows,
                                                 std::span<const KvSlot> slots);

/// The same for a backend that holds the whole model, in home slots.
[[nodiscard]] std::vector<float> sequence_logits(Backend& backend,
                                                 std::span<const TokenId> tokens,
                                                 int batch_rows);

struct Deviation {
    double relative = 0.0;  // the largest relative error; infinite if a logit is not a number
    int row = 0;            // where it is
    int column = 0;
};

/// Both are [rows, vocab_size].
[[nodiscard]] Deviation deviation(std::span<const float> got,
                                  std::span<const float> want,
                                  int vocab_size);

/// The index of the largest logit of each row; of equals the lowest.
[[nodiscard]] std::vector<TokenId> argmax_of_rows(std::span<const float> logits, int vocab_size);

/// Whether both have the same bits.
[[nodiscard]] bool same_bits(std::span<const float> a, std::span<const float> b);

}  // namespace paceline::testing
