# Read within llama.cpp's own CMakeLists.txt, whose settings llama-cpp-python forces: what llama.cpp's programs share is
# not compiled, and the libraries for each processor look for the others beside themselves.
set(LLAMA_BUILD_COMMON OFF)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN")
