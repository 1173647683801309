// What grammars need of a model file: its vocabulary, and a loader that reads it when the first
// grammar comes.
//
// Thread-safe loaders; plain functions.
#pragma once

#include <functional>
#include <memory>

#include "ipc/base/result.hpp"
#include "launch/base/model_options.hpp"
#include "model/grammar/grammar.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// Errors: those of tokenizer_of().
[[nodiscard]] Result<GrammarVocabulary> grammar_vocabulary_of(const ModelFile& file);

/// A loader that asks for its vocabulary with the first grammar: most processes never see one, and
/// a stage that is restarted does not wait for it. What `vocabulary` uses must outlive the loader.
[[nodiscard]] std::shared_ptr<GrammarLoader> lazy_grammar_loader(
    std::function<Result<GrammarVocabulary>()> vocabulary);

/// The same of the model that the options name (open_named_model()), which is opened again then.
[[nodiscard]] std::shared_ptr<GrammarLoader> lazy_grammar_loader(const ModelOptions& model);

}  // namespace paceline
