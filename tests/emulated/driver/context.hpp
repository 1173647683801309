// The device whose context a thread is in, as cuCtxSetCurrent() leaves it.
//
// One number for each thread; -1: none.
#pragma once

namespace paceline::emulated {

inline int& current_device_of_thread() {
    thread_local int device = -1;
    return device;
}
inline void set_current_device(int device) {
    current_device_of_thread() = device;
}
[[nodiscard]] inline int current_device() {
    return current_device_of_thread();
}

}  // namespace paceline::emulated
