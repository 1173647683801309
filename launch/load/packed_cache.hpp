// The cache of packed weights: a folder that is loaded with --dtype int8 or q4 is converted once.
//
//     CACHE/packed/CONTENT-q8_0.gguf, -q4_1.gguf    a packed copy (model/weights/packed_copy.hpp)
//     CACHE/packed/FOLDER.known                     which CONTENT a folder had, and what its files
//                                                   looked like
//
// CONTENT is a SHA-256 over the bytes of all safetensors files and over what config.json makes of
// them (name, type, shape and order of rows of each tensor). A path, a size or a time is no part of
// it: a folder that was moved or fetched again finds its copy, and two folders of one name never
// share one.
//
// Reading a folder to hash it takes as long as packing it, so a second start does not hash. It
// checks in the file system whether the files are those that were hashed: FOLDER.known, named by a
// hash of the folder's real path, has for each file its device, inode, size, time of modification
// and time of change. The last one cannot be set by a program and moves with every write,
// truncation and rename, so equal texts mean equal bytes (git trusts its index in the same way); a
// file that changed within the last two seconds, the coarsest clock of a file system, is hashed
// again at the next start. If anything differs, the folder is hashed again.
//
// A copy is verified by its checksum at each start, in each process. A copy that is damaged, or
// does not belong to this folder, is removed and made again. Of two processes the second waits for
// the first one's copy. A process that is killed leaves an unfinished file, which the next one that
// opens the cache removes, for any folder. No other file is removed. `rm -r` of the folder is safe
// at any time, also while a model runs.
//
// A copy is made only if at least its own size remains free on the disk. A failure here is not an
// error: the weights are packed in memory, as without a cache, and the reason is returned as a
// sentence for the user.
#pragma once

#include <string>
#include <string_view>

#include "launch/base/environment.hpp"
#include "launch/base/model_options.hpp"
#include "launch/base/progress_bar.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// Makes `file` read its matrices from a copy, made first if there is none, where the options ask
/// for it: a folder, int8 or q4, no LoRA, no --no-cache. Returns a sentence for people, or nothing.
/// With a LoRA the sum of both is what is packed: a copy of it would serve that LoRA alone.
[[nodiscard]] std::string use_packed_cache(ModelFile& file,
                                           const ModelOptions& options,
                                           const Environment& environment,
                                           Show bars);

/// The same in a stage process, where `copy` names the one that its parent uses with `dtype`.
/// Without it, or where it is gone by now, the folder is packed: the bits are the same.
void use_named_copy(ModelFile& file, std::string_view dtype, const std::string& copy);

}  // namespace paceline
