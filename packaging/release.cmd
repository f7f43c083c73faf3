@echo off
rem release.cmd: makes the window's installer for Windows in dist\. It needs Python for Windows (64-bit) and NSIS, whose
rem makensis has to be on the PATH. BURNISH_SIGN names a command that signs a file, with %%1 in the file's place.
setlocal
cd /d "%~dp0.."
if not defined PYTHON set "PYTHON=py -3"
%PYTHON% packaging\release\freeze.py build\release\studio dist || exit /b 1
