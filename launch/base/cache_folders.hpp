// The folders of models of the Hugging Face hub and of Paceline's own copies.
//
// The environment comes as a function, since main.cpp alone reads it; a variable that is empty
// counts as unset. Folders need not exist. One thread.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace paceline {

/// The value of an environment variable; nothing if it is not set.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;

/// Where the library of the hub (huggingface_hub) looks: HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE,
/// else hub/ in HF_HOME, else huggingface/hub/ in XDG_CACHE_HOME or ~/.cache. As there, `~`,
/// `~user`, `$NAME` and `${NAME}` in a value are expanded.
[[nodiscard]] std::string hub_cache_folder(const Variables& variables);

/// Of Paceline's own files: paceline/ in XDG_CACHE_HOME or ~/.cache. A relative XDG_CACHE_HOME is
/// ignored, as the XDG base directory specification wants it. Empty: there is no home folder
/// either.
[[nodiscard]] std::string own_cache_folder(const Variables& variables);

}  // namespace paceline
