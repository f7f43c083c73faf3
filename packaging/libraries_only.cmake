# Read within llama.cpp's own CMakeLists.txt: what its programs share is not compiled.
# llama-cpp-python turns it on by force, and installs it although nothing loads it.
set(LLAMA_BUILD_COMMON OFF)
