@echo off
rem Finds a Python and hands over to bootstrap.py, which does all the rest.
setlocal
set "burnish_python="
for %%V in (3.13 3.12 3.11 3.14 3) do if not defined burnish_python (py -%%V -c "" >nul 2>nul && set "burnish_python=py -%%V")
if not defined burnish_python (python -c "" >nul 2>nul && set "burnish_python=python")
if not defined burnish_python goto missing
%burnish_python% "%~dp0bootstrap.py" test %*
exit /b %errorlevel%
:missing
echo Burnish needs Python 3.11 or newer, and none was found. Install it from python.org and start again. 1>&2
exit /b 12
