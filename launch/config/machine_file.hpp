// GpuMachine: the GPUs that stages may be placed on, with their memory, near cores and links; read
// from a TOML file that describes a machine (configs/machines holds examples), so that a placement
// can be planned where no GPU is.
//
//     [machine]   its name
//     [[numa]]    a NUMA node and its cores
//     [[gpu]]     one GPU, or `count` alike; numbered in the order of the file
//     [[link]]    between each two of the GPUs that it lists
//     [[node]]    a machine of several; each has all the GPUs of the file
//
// Every two GPUs of a machine have exactly one link; those of two machines have the link of kind
// `network`, if the file has one. GPUs are numbered machine after machine. Keys and ranges: the
// fields_of() of each table. Errors name file, line, key and value. Plain values, no I/O except
// reading the file; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ipc/base/result.hpp"

namespace paceline {

struct Field;

/// Peer: real GPUs with peer access, by NVLink or PCIe. Unknown: not described.
enum class LinkKind : std::uint8_t { Nvlink, Pcie, Host, Network, Unknown, Peer };

struct GpuLink {
    LinkKind kind = LinkKind::Unknown;
    double gb_per_second = 0;  // in each direction; 0: not known
    double us = 0;             // of a network: one way, without the bytes; 0: not known
};

struct MachineGpu {
    std::string name;
    std::uint64_t memory_bytes = 0;
    std::vector<int> near_cores;  // of its NUMA node, ascending; empty: not known
    std::size_t node = 0;         // index of its machine in GpuMachine::nodes
};

struct GpuMachine {
    std::string source;                                 // the file, or "this machine": for messages
    std::string name;                                   // may be empty
    std::vector<MachineGpu> gpus;                       // by number
    std::map<std::pair<int, int>, GpuLink> links = {};  // the lower number first
    std::vector<std::string> nodes = {};                // names of several machines; empty: one
    GpuLink network = {LinkKind::Network};              // between them

    /// Between two different GPUs; Unknown if the file has no link for them.
    [[nodiscard]] GpuLink link(int a, int b) const;
    /// Whether both are in one machine.
    [[nodiscard]] bool together(int a, int b) const;
    /// "cuda:1"; of several machines "b/cuda:1", with the GPU's number there.
    [[nodiscard]] std::string gpu_name(int gpu) const;
    /// Whether kernels of the one read and write the memory of the other.
    [[nodiscard]] bool reach(int a, int b) const;
    /// Of all NUMA nodes that GPUs are near to, ascending.
    [[nodiscard]] std::vector<int> cores() const;
};

/// Tables as they stand in the file.
struct NumaTable {
    int node = 0;
    std::string cores;  // "0-15,32-47"
};
struct GpuTable {
    std::string name;
    int count = 1;
    double memory_gib = 0;
    int numa = 0;
};
struct LinkTable {
    std::vector<int> gpus;  // empty: all
    LinkKind kind = LinkKind::Unknown;
    double gb_per_second = 0;
    double us = 0;
};
struct NodeTable {
    std::string name;
};
[[nodiscard]] std::vector<Field> fields_of(NumaTable& table);
[[nodiscard]] std::vector<Field> fields_of(GpuTable& table);
[[nodiscard]] std::vector<Field> fields_of(LinkTable& table);
[[nodiscard]] std::vector<Field> fields_of(NodeTable& table);

/// Errors: BadFile (missing, not TOML), BadArgument (keys, values, a NUMA node or a link that is
/// missing or given twice).
[[nodiscard]] Result<GpuMachine> read_machine_file(const std::string& path);
/// The same from text; `file` is the name used in messages.
[[nodiscard]] Result<GpuMachine> parse_machine_file(std::string_view text, const std::string& file);

/// "nvlink, 300 GB/s"; "network, 12.5 GB/s, 25 us"; "unknown".
[[nodiscard]] std::string to_text(const GpuLink& link);

}  // namespace paceline
