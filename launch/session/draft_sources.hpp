// The source of a draft stage that needs no model: prompt lookup, guesses, a datastore, or two of
// them (DraftConfig). One for each request comes from the factory.
//
// The factory may be copied and called from one thread at a time; a datastore is shared by all its
// sources.
#pragma once

#include "actors/draft/draft_source.hpp"
#include "ipc/base/result.hpp"
#include "launch/config/draft_config.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// Empty for a draft with a model alone. Errors: BadArgument for an n-gram range or window that
/// cannot be; those of Datastore::open(), with the key.
[[nodiscard]] Result<DraftSourceFactory> draft_source(const DraftConfig& config,
                                                      const TokenizerData& tokenizer);

}  // namespace paceline
